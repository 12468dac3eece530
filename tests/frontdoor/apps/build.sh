#!/usr/bin/env bash
# Builds paddock-test/apps:1 on this host's engine: Jupyter of PyPI, which tests/frontdoor opens by a link. Where it can't be
# fetched, its test is skipped.
# shellcheck source-path=SCRIPTDIR source=../../../deploy/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../../deploy/lib/common.sh"

tag=paddock-test/apps:1
here=$ROOT/tests/frontdoor/apps
recipe=$(cat "$here/Dockerfile" "$here/requirements.txt" "$0" | sha256sum | cut -c1-16)
[ "$(docker image inspect --format '{{index .Config.Labels "paddock.dev/recipe"}}' "$tag" 2>/dev/null)" != "$recipe" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step "Fetching Jupyter for a sandbox"
# For the image's Python, not for this host's; of wheels alone, so that nothing of it runs here.
progress "pip install" "$PADDOCK_VENV/bin/python" -P -m pip install --disable-pip-version-check --no-input --no-compile \
    --python-version 3.11 --only-binary :all: --target "$work/jupyter" -r "$here/requirements.txt" || {
    warn "without Jupyter its test is skipped."
    exit 0
}
cp "$here/Dockerfile" "$work"
export DOCKER_BUILDKIT=0
docker build -q --force-rm --label "paddock.dev/recipe=$recipe" -t "$tag" "$work"
