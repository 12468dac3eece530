#!/usr/bin/env bash
# The panel's vendored modules: compared with the packages that their manifest names, or taken from them anew.
#   deploy/vendor.sh            compares every file with its package, and both with the hashes of the manifest
#   deploy/vendor.sh --write    takes the files from the packages (versions: the manifest), and writes the hashes
# Needs npm, which fetches the packages. Settings: PYTHON.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case ${1:-} in
    '' | --write) ;;
    *) die "unknown argument: $1" "Use: deploy/vendor.sh [--write]" ;;
esac
have npm || die "npm is missing: it fetches the packages to compare with." "Install it (Debian: apt-get install npm), then run this again."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$ROOT/controller/api/panel/static/vendor
while read -r package; do
    (cd "$work" && progress "$package" npm pack --silent "$package") || die "$package could not be fetched; nothing was changed."
done < <("${PYTHON:-python3}" "$ROOT/deploy/lib/vendored.py" --list "$folder")
"${PYTHON:-python3}" "$ROOT/deploy/lib/vendored.py" "${1:---compare}" "$folder" "$work"
