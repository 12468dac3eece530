#!/usr/bin/env bash
# The virtual environment: every package pinned and checked against the hashes of the lock file, then Paddock itself and its
# SDK (controller/client), editable.
#   deploy/venv.sh          what Paddock needs to run       (requirements.lock)
#   deploy/venv.sh --copy   the same with Paddock copied into it, so that it needs this checkout no more (deploy/install.sh)
#   deploy/venv.sh --dev    and what its tests need as well (requirements-dev.lock, which holds all of the other)
#   deploy/venv.sh --panel  and what drives a browser       (requirements-panel.lock, which holds all of both)
# Settings: PYTHON (the interpreter), PADDOCK_VENV (the folder). Stamps in the folder make a second run a matter of milliseconds.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

how=(--editable)
locks=(requirements.lock requirements-dev.lock requirements-panel.lock) # each holds those before it
case ${1:-} in
    '') locks=("${locks[@]:0:1}") ;;
    --copy) locks=("${locks[@]:0:1}") how=() ;;
    --dev) locks=("${locks[@]:0:2}") ;;
    --panel) ;;
    *) die "unknown argument: $1" "Use: deploy/venv.sh [--dev | --panel | --copy]" ;;
esac
lock=$ROOT/${locks[-1]}

venv=$PADDOCK_VENV
made=$venv/.paddock-made       # this folder is ours to rebuild
locked=$venv/.paddock-locked   # hashes of the lock files that are installed
project=$venv/.paddock-project # hash of the packaging of the project that is installed

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

recent_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
makes_venvs() { "$1" -P -c 'import ensurepip, venv' >/dev/null 2>&1; } # Debian ships ensurepip apart, in python3-venv

# find_python: sets $python. An interpreter that can make venvs is better than one that needs a package first.
find_python() {
    local candidate suitable=()
    if [ -n "${PYTHON:-}" ]; then
        have "$PYTHON" || die "PYTHON=$PYTHON: there is no such command."
        recent_enough "$PYTHON" || die "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 || true): Paddock needs Python 3.11 or newer."
        suitable=("$PYTHON")
    else
        for candidate in python3.13 python3.12 python3.11 python3; do
            if have "$candidate" && recent_enough "$candidate"; then suitable+=("$candidate"); fi
        done
        [ ${#suitable[@]} -gt 0 ] || die "no Python 3.11 or newer was found (looked for python3.13, python3.12, python3.11, python3)." \
            "Install one (Debian 12 and Ubuntu 24.04 or newer: apt-get install python3 python3-venv), or name yours: PYTHON=/path/to/python make up"
    fi
    for python in "${suitable[@]}"; do
        if makes_venvs "$python"; then return; fi
    done
    python=${suitable[0]}
    local package=python3-venv numbered
    numbered=$(basename "$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')")-venv
    may_install "$package"
    if [ "$(command -v python3)" != "$(command -v "$python")" ]; then package=$numbered; fi
    step "Installing $package, without which $python makes no virtual environments"
    apt_install "$package"
    makes_venvs "$python" || die "$python still cannot make virtual environments." "Name another interpreter: PYTHON=/path/to/python make up"
}

make_venv() {
    find_python
    step "Making $venv with $("$python" --version 2>&1)"
    rm -rf "$venv"
    mkdir -p "$venv"
    : >"$made" # first of all, so that a run that was broken off can be taken up
    progress "python -m venv" "$python" -P -m venv "$venv" || die "the virtual environment could not be created." "The output above says why."
}

if [ -e "$venv" ] && [ ! -e "$made" ]; then
    if [ ! -d "$venv" ] || [ -n "$(ls -A "$venv")" ]; then
        die "$venv exists and was not created by this script: it is left alone." "Move it away, or name another folder: PADDOCK_VENV=/path make up"
    fi
fi
[ -r "$lock" ] || die "$(basename "$lock") is missing." "Make it with: make lock"

line_of() { printf '%s %s\n' "$1" "$(hash_of "$ROOT/$1")"; }
want_lock=$(line_of "${locks[-1]}")
runtime_lock=$(line_of requirements.lock)
want_project="$ROOT $(hash_of "$ROOT/pyproject.toml" "$ROOT/controller/client/pyproject.toml")"

if ! "$venv/bin/python" -c '' 2>/dev/null; then make_venv; fi # absent, broken off, or its interpreter is gone
if ! grep -qsxF "$want_lock" "$locked"; then
    # Stale pins never linger: only a venv that holds the present runtime lock is added to, any other is made anew.
    if [ -e "$locked" ] && ! grep -qsxF "$runtime_lock" "$locked"; then make_venv; fi
    step "Installing the packages of $(basename "$lock") ($(grep -c '^[a-z0-9].*==' "$lock") pins, each checked by hash)"
    progress "pip install" "$venv/bin/python" -P -m pip install --disable-pip-version-check --no-input --no-deps --require-hashes -r "$lock" ||
        die "the packages could not be installed." "If the network was the trouble, run this again: what is here is not fetched twice."
    for name in "${locks[@]}"; do line_of "$name"; done >"$locked"
    rm -f "$project"
fi
if [ "$(cat "$project" 2>/dev/null)" != "$want_project" ]; then
    progress "pip install ${how[*]:+${how[*]} }(Paddock itself)" \
        "$venv/bin/python" -P -m pip install --disable-pip-version-check --no-input --no-deps --no-build-isolation "${how[@]}" "$ROOT/controller/client" "${how[@]}" "$ROOT" ||
        die "Paddock itself could not be installed into $venv." "The output above says why."
    printf '%s\n' "$want_project" >"$project"
fi
