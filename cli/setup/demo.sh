#!/usr/bin/env bash
# Deploy two regions, ask a short and a long question, and leave everything running.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
prfaasctl=${VENV:-$root/.venv}/bin/prfaasctl

say() {
  local word shown=''
  for word in "$@"; do
    [[ $word == *' '* ]] && word=${word@Q}
    shown+=" $word"
  done
  printf '\n$ prfaasctl%s\n' "$shown"
  "$prfaasctl" "$@"
}

say deploy --regions a,b
say chat --max-tokens 16 'Why is the sky blue?'
say chat --max-tokens 16 --repeat-to 2000 'Please summarise this letter for a reader in a hurry.'

cat <<END

The short prompt was prefilled in region b, beside its decode; the long one in region a, across the link.
The models are tiny and have random weights: their words mean nothing.
It is still running. Next:
  $prfaasctl status             what runs and where
  $prfaasctl chat 'Hello'       another question
  $prfaasctl destroy            remove everything
END
