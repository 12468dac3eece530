#!/usr/bin/env bash
# What is known to be weak in what Paddock stands on: its pinned Python packages, and the Debian packages in its images.
#   deploy/audit.sh
# Ends with 0: looked, and nothing is known; 1: something is, with what to do; 3: something could not be looked at, which is never taken for good.
# Settings: PYTHON, PADDOCK_AUDIT_SERVICE (pypi or osv: where pip-audit asks).
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=lib/debian.sh
. "$ROOT/deploy/lib/debian.sh"

release=bookworm
venv=$ROOT/.cache/audit-venv
found=
blind=
work=$(mktemp -d "${TMPDIR:-/tmp}/paddock-audit.XXXXXX")
trap 'rm -rf "$work"' EXIT

unseen() {
    warn "$*"
    blind=yes
}

# The tool is no part of Paddock's environment: what it needs itself would be audited, too.
audit_python() {
    local lock rc
    step "Python packages: the pins of the lock files"
    if [ ! -x "$venv/bin/pip-audit" ]; then
        rm -rf "$venv"
        # shellcheck disable=SC2016 # $0 and $1 are for its own shell
        if ! progress "pip-audit" sh -c '"$0" -m venv "$1" && "$1/bin/pip" -q install --disable-pip-version-check --no-input pip-audit' "${PYTHON:-python3}" "$venv"; then
            rm -rf "$venv"
            unseen "pip-audit could not be installed, so no Python package was looked at"
            return
        fi
    fi
    for lock in requirements.lock requirements-dev.lock requirements-panel.lock; do
        rm -f "$work/found.json"
        "$venv/bin/pip-audit" --vulnerability-service "${PADDOCK_AUDIT_SERVICE:-pypi}" --require-hashes --disable-pip --progress-spinner off --timeout 15 \
            --format json --output "$work/found.json" --requirement "$ROOT/$lock" >"$work/said" 2>&1 || true
        rc=0
        "$venv/bin/python" "$ROOT/deploy/lib/audited.py" "$lock" "$work/found.json" || rc=$?
        case $rc in
            0) ;;
            1) found=yes ;;
            *) unseen "$lock: the source of advisories was not reached or knows nothing; pip-audit said: $(tail -n 1 "$work/said")" ;;
        esac
    done
}

# What Debian has newer in the same release, it has for a reason: security updates are nearly all of it.
audit_image() {
    local image=$1 newer
    step "Debian packages in $image"
    if ! docker image inspect "$image" >/dev/null 2>&1; then
        unseen "$image is not on this engine (images/build.sh), or no engine answers: it was not looked at"
    elif ! newer=$(docker run --rm --user 0 --network host --volume "$work/host-apt:/host-apt:ro" --env APT_CONFIG=/host-apt/apt.conf --entrypoint sh "$image" -c \
        'apt-get -q update >&2 && apt-get -q --simulate dist-upgrade' 2>"$work/said"); then
        unseen "$image: Debian's lists could not be fetched: $(tail -n 1 "$work/said")"
    elif newer=$(grep '^Inst ' <<<"$newer"); then
        found=yes
        say "${newer//Inst /    newer: }"
        say "    rebuild it and the images based on it: images/build.sh --force ${image#paddock/}"
    else
        say "    up to date"
    fi
}

audit_python
host_apt "$release" "$work/host-apt"
for image in paddock/base:1 paddock/python:1; do audit_image "$image"; done

if [ -n "$found" ]; then die "known weaknesses were found: see above."; fi
if [ -n "$blind" ]; then
    say "No known weaknesses, but some checks were skipped: see the warnings."
    exit 3
fi
say "No known weaknesses."
