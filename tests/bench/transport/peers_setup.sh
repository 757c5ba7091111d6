#!/usr/bin/env bash
# Install the libraries that bench-transport measures beside the lanes into an environment of their own: peers_setup.sh FOLDER.
# They are no part of the product. Quick when nothing is missing; VENV names the project's environment, whose Python is taken.
set -euo pipefail

folder=$1
# Without dependencies: NIXL's wheel asks for torch and CUDA's libraries (2.5 GB), of which its transfers in memory use nothing.
packages=(
  mooncake-transfer-engine-non-cuda==0.3.13.post1
  nixl==1.5.1
  nixl-cu12==1.5.1
  "numpy>=2,<3"
)

install_packages() {
  local done_file=$folder/.installed
  [[ $(cat "$done_file" 2>/dev/null) == "${packages[*]}" ]] && return
  "${VENV:?}/bin/python" -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "${packages[@]}"
  printf '%s' "${packages[*]}" >"$done_file"
}

# Mooncake's engine is linked with libibverbs, whatever transport it uses.
install_libibverbs() {
  ldconfig -p | grep -q 'libibverbs\.so\.1' && return
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "bench-peers-setup: libibverbs is missing: install libibverbs1 as root" >&2
    return 1
  fi
  local log=$folder/apt.log
  export DEBIAN_FRONTEND=noninteractive
  apt-get -y -q --no-install-recommends install libibverbs1 >"$log" 2>&1 </dev/null ||
    { apt-get -q update && apt-get -y -q --no-install-recommends install libibverbs1; } >>"$log" 2>&1 </dev/null ||
    { echo "bench-peers-setup: apt could not install libibverbs1, see $log" >&2; return 1; }
}

install_packages
PATH=$PATH:/usr/sbin:/sbin install_libibverbs
"$folder/bin/python" -c "import mooncake.engine, nixl._api"
