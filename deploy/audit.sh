#!/usr/bin/env bash
# Known vulnerabilities of what Paddock stands on: its images, lock files and vendored JavaScript.
#   deploy/audit.sh [--db FOLDER] [--sarif FILE] [--all] [IMAGE...]
# Asks an OSV service, or looks into a folder of advisories (--db: OSV's or Debian's JSON, deploy/README.md), and asks
# Debian's mirror for newer packages of the images (not with --db).
# Ends with 0: looked, and nothing is known; 1: something is, with what to do; 3: something could not be looked at, which is never taken for good.
# Settings: PADDOCK_VENV, PADDOCK_AUDIT_OSV (the address of the OSV service).
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=lib/debian.sh
. "$ROOT/deploy/lib/debian.sh"

release=bookworm
work=$(mktemp -d "${TMPDIR:-/tmp}/paddock-audit.XXXXXX")
trap 'rm -rf "$work"' EXIT
[ -x "$PADDOCK_VENV/bin/python" ] || "$ROOT/deploy/venv.sh" >&2
host_apt "$release" "$work/host-apt"
paths=() # of arguments: relative to where it was called
while [ $# -gt 0 ]; do
    case $1 in
        --db | --sarif)
            [ $# -gt 1 ] || die "$1 needs a path." "Use: deploy/audit.sh [--db FOLDER] [--sarif FILE] [--all] [IMAGE...]"
            paths+=("$1" "$(realpath -m -- "$2")")
            shift
            ;;
        *) paths+=("$1") ;;
    esac
    shift
done
cd "$ROOT"
"$PADDOCK_VENV/bin/python" -m deploy.supply audit --apt "$work/host-apt" "${paths[@]}"
