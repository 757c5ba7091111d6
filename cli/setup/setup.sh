#!/usr/bin/env bash
# Bring a machine to where PrfaaS runs: system programs, .venv, packages, tiny models.
# Safe to run again at any time: finished steps are remembered in .venv and take no time, an interrupted one is
# taken up again. `PYTHON` names the interpreter to use, `VENV` another place for the environment.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
source "$here/progress.sh"
source "$here/system.sh"
source "$here/python.sh"

venv=${VENV:-$root/.venv}
stamps=$venv/.setup
steps=8

main() {
  cd "$root"
  step "machine";          check_machine
  step "system programs";  install_programs
  step "Python";           find_python
  step "environment";      make_environment
  step "packages";         install_packages
  step "this project";     install_project
  step "terraform";        find_terraform
  step "tiny models";      make_models
  finish
}

main
