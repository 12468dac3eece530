# shellcheck shell=bash
# What deploy/install.sh and deploy/uninstall.sh know of an installed Paddock. Sourced after common.sh.

: "${PREFIX:=/usr/local}"
: "${DESTDIR:=}"
lib=$DESTDIR$PREFIX/lib/paddock
# shellcheck disable=SC2034 # for those who source this
config=$DESTDIR/etc/paddock/paddock.toml
# shellcheck disable=SC2034
state=$DESTDIR/var/lib/paddock

# installed VERSION ARGUMENTS...: that version's interpreter. Settings of this shell are not the service's.
installed() {
    local version=$1
    shift
    env -i PATH="$PATH" HOME="${HOME:-/root}" ${TMPDIR:+TMPDIR="$TMPDIR"} "$lib/$version/bin/python" -I "$@"
}

systemd_runs() { have systemctl && [ -d "$DESTDIR/run/systemd/system" ]; }

# forget_snapshot_images: takes the names off the images that snapshots are based on, also those of state folders that
# somebody removed. The images stay; another daemon of this engine names its own again at its next start.
forget_snapshot_images() {
    local name
    have docker || return 0
    docker image ls --format '{{.Repository}}:{{.Tag}}' paddock-snapshot 2>/dev/null | while read -r name; do
        docker image rm --no-prune "$name" >/dev/null 2>&1 || say "    $name could not be removed; docker image rm --no-prune $name"
    done
}
