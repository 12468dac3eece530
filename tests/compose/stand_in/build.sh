#!/usr/bin/env bash
# Builds paddock-test/compose:1 on this host's engine: servers of Debian's packages, for tests/compose.
# shellcheck source-path=SCRIPTDIR source=../../../deploy/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../../deploy/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=../../../deploy/lib/debian.sh
. "$ROOT/deploy/lib/debian.sh"

tag=paddock-test/compose:1
here=$ROOT/tests/compose/stand_in
recipe=$(cat "$here/Dockerfile" "$here/entry" "$here/app.py" | sha256sum | cut -c1-16)
[ "$(docker image inspect --format '{{index .Config.Labels "paddock.dev/recipe"}}' "$tag" 2>/dev/null)" != "$recipe" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/Dockerfile" "$here/entry" "$here/app.py" "$work"
host_apt bookworm "$work/host-apt"
export DOCKER_BUILDKIT=0
docker build -q --network host --force-rm --label "paddock.dev/recipe=$recipe" -t "$tag" "$work"
