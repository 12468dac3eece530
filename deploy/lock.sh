#!/usr/bin/env bash
# Writes from pyproject.toml: requirements.lock (run: with PostgreSQL's driver), requirements-dev.lock (that, and the tests' tools)
# and requirements-panel.lock (that, and what drives a browser); and from the .in files beside them tests/mcp/requirements.lock
# and servers.lock (MCP clients and servers of others, in environments of their own) and the images' requirements.lock (python,
# data: with what the packages need; of the others the single package that brings a program).
#   deploy/lock.sh [--upgrade]     keeps the pins that still fit; --upgrade takes the newest
# The tool, uv, is no dependency of the project: it lives in a throw-away folder for the run. One lock serves every Python from 3.11 on, and names neither an index nor a path.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

case ${1:-} in
    '' | --upgrade) ;;
    *) die "unknown argument: $1" "Use: deploy/lock.sh [--upgrade]" ;;
esac
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$ROOT"

progress "making a throw-away folder" "$python" -P -m venv "$work/uv"
progress "fetching uv into it" "$work/uv/bin/pip" install --quiet uv ||
    die "uv could not be fetched." "The lock files are unchanged."

# What builds the project is pinned as well: it is installed without build isolation.
"$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' >"$work/build.in"

# The SDK is built from this repository; what it needs is listed by the project, too (tests/deploy/test_lock.py).
grep -v '"paddock-sdk"' pyproject.toml >"$work/pyproject.toml"

# compile FILE SOURCE...: uv reads the present pins from the output file; folders of local wheels that this machine may prefer are left out.
compile() {
    local out=$1
    shift
    mkdir -p "$(dirname "$work/$out")"
    if [ -e "$out" ]; then cp "$out" "$work/$out"; fi
    progress "resolving $out" env -u UV_FIND_LINKS "$work/uv/bin/uv" pip compile "$@" "${constraint[@]}" "${upgrade[@]}" \
        "${target[@]}" --python-version 3.11 --generate-hashes --no-config --no-emit-index-url --no-emit-find-links --no-annotate \
        --custom-compile-command 'make lock' --output-file "$work/$out" ||
        die "$out could not be resolved; the lock files are unchanged." "The output above says which requirement conflicts."
}

target=(--universal)
upgrade=()
[ -z "${1:-}" ] || upgrade=("$1")
constraint=()
project=("$work/pyproject.toml" "$work/build.in" --extra postgres)
compile requirements.lock "${project[@]}"
# The second never differs from the first in what both hold.
constraint=(--constraint "$work/requirements.lock")
compile requirements-dev.lock "${project[@]}" --extra dev
constraint=(--constraint "$work/requirements-dev.lock")
compile requirements-panel.lock "${project[@]}" --extra dev --extra panel
constraint=()
for each in requirements servers; do
    compile "tests/mcp/$each.lock" "tests/mcp/$each.in"
done
# Of an image's Python alone: pip reads markers for the Python that it runs on, and that is the host's.
target=(--python-platform linux)
compile images/python/requirements.lock images/python/requirements.in
# The second stands on the first, and never differs in what both hold.
constraint=(--constraint "$work/images/python/requirements.lock")
compile images/data/requirements.lock images/data/requirements.in
constraint=()
target=(--universal)

for each in node deno model-tiny; do
    constraint=(--no-deps)
    compile "images/$each/requirements.lock" "images/$each/requirements.in"
done

for file in requirements.lock requirements-dev.lock requirements-panel.lock tests/mcp/requirements.lock tests/mcp/servers.lock images/{python,data,node,deno,model-tiny}/requirements.lock; do
    if grep -nE '://|^-|file:' "$work/$file"; then die "$file would name an index or a path (the lines above); the lock files are unchanged."; fi
    cat "$work/$file" >"$ROOT/$file"
done
say "requirements.lock: $(grep -c '^[a-z0-9].*==' requirements.lock) pins; requirements-dev.lock: $(grep -c '^[a-z0-9].*==' requirements-dev.lock) pins; tests/mcp/requirements.lock: $(grep -c '^[a-z0-9].*==' tests/mcp/requirements.lock) pins"
