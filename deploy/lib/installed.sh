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
