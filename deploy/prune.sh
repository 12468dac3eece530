#!/usr/bin/env bash
# Remove the volumes that nothing uses (`Released`), after a question: they are kept until somebody says so.
#   deploy/prune.sh          list them, ask, remove those
#   deploy/prune.sh -y       the same without a question
#   deploy/prune.sh NAME ... these volumes of the namespace `default` (or PADDOCK_NAMESPACE) alone
# Old images of Paddock's recipes are removed by the daemon itself (setting prune_images).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
paddock=${PADDOCK_VENV:-.venv}/bin/paddock

if [[ $# -gt 0 && $1 != -y && $1 != --yes ]]; then
    exec "$paddock" delete volume "$@"
fi
template='{range .items[*]}{.metadata.namespace} {.metadata.name} {.spec.size}{"\n"}{end}'
unused=$("$paddock" get volumes -A --field-selector status.phase=Released -o jsonpath="$template")
if [[ -z $unused ]]; then
    echo "No volume is unused."
    exit 0
fi
echo "Volumes that nothing uses (namespace, name, size):"
printf '  %s\n' "${unused//$'\n'/$'\n'  }"
if [[ $# -eq 0 ]]; then
    read -r -p "Remove them, with all of their data? [y/N] " answer || answer=
    if [[ $answer != [yY]* ]]; then
        echo "Nothing was removed. ARGS=-y removes them without this question, ARGS=NAME one of them."
        exit 0
    fi
fi
while read -r namespace name _; do
    "$paddock" delete volume "$name" -n "$namespace" </dev/null
done <<<"$unused"
