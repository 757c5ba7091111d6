# Progress lines, stamps of finished steps, and how set-up gives up. Sourced by setup.sh.

step_number=0
started_s=$SECONDS

step() {
  step_number=$((step_number + 1))
  step_started_s=$SECONDS
  step_name=$1
}

# done_step DETAIL: close the step with one line.
done_step() {
  printf '[%d/%d] %-16s %s (%d s)\n' "$step_number" "$steps" "$step_name" "$1" "$((SECONDS - step_started_s))"
}

# note TEXT: one line inside a step that takes long.
note() {
  printf '[%d/%d] %-16s %s\n' "$step_number" "$steps" "$step_name" "$1"
}

# give_up WHAT DO: name what is missing and what to do about it.
give_up() {
  printf 'setup stopped at step %d/%d (%s): %s\n  %s\n' "$step_number" "$steps" "$step_name" "$1" "$2" >&2
  exit 1
}

finish() {
  printf 'ready after %d s; next: make demo\n' "$((SECONDS - started_s))"
}

# stamped NAME KEY: whether the step ended well before, with the same key.
stamped() {
  [[ -f $stamps/$1 && $(<"$stamps/$1") == "$2" ]]
}

stamp() {
  mkdir -p "$stamps"
  printf '%s\n' "$2" >"$stamps/$1.new"
  mv "$stamps/$1.new" "$stamps/$1"
}

digest() {
  cat "$@" | sha256sum | cut -d ' ' -f 1
}
