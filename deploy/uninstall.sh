#!/usr/bin/env bash
# Takes away what deploy/install.sh installed. Sandboxes run on, and settings, data and logs are kept:
#   deploy/uninstall.sh [--purge]    --purge removes settings, data and logs as well; delete the sandboxes first (paddock delete)
# Settings: PREFIX, DESTDIR, as for deploy/install.sh.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/installed.sh
. "$ROOT/deploy/lib/installed.sh"

case ${1:-} in
    '' | --purge) purge=${1:-} ;;
    *) die "unknown argument: $1" "Use: deploy/uninstall.sh [--purge]" ;;
esac
[ -n "$DESTDIR" ] || is_root || die "uninstalling needs root." "Run: sudo deploy/uninstall.sh"

if systemd_runs && [ -e "$DESTDIR/etc/systemd/system/paddock.service" ]; then
    step "Stopping the service"
    systemctl disable --quiet --now paddock || die "the service could not be stopped; nothing was removed." "systemctl status paddock says why."
    systemctl disable --quiet paddock-guard 2>/dev/null || true # what it loaded stays in force: sandboxes run on
fi
if [ -z "$DESTDIR" ] && { [ -e /etc/systemd/system/paddock-zram.service ] ||
    swapon --show=LABEL --noheadings 2>/dev/null | grep -qx paddock-zram; }; then
    step "Turning off its compressed swap"
    "$ROOT/deploy/zram.sh" --remove
fi
step "Removing Paddock from $DESTDIR$PREFIX"
wrapper=$DESTDIR$PREFIX/bin/paddock
if grep -qs 'by deploy/install.sh' "$wrapper"; then rm "$wrapper"; fi
rm -f "$DESTDIR"/etc/systemd/system/paddock.service "$DESTDIR"/etc/systemd/system/paddock-guard.service \
    "$DESTDIR"/etc/tmpfiles.d/paddock.conf "$DESTDIR"/etc/logrotate.d/paddock
for folder in "$lib"/*+*/; do
    if [ -e "$folder/.paddock-made" ]; then rm -rf "$folder"; fi
done
rm -f "$lib/current"
rmdir "$lib" 2>/dev/null || [ ! -d "$lib" ] || say "    $lib has files that were not created by deploy/install.sh: left alone"
if systemd_runs; then systemctl daemon-reload; fi
if [ -n "$purge" ]; then
    [ -n "$DESTDIR" ] || forget_snapshot_images
    remove_folders "$DESTDIR/etc/paddock" "$state" "$DESTDIR/var/log/paddock" "$DESTDIR/run/paddock"
    [ -n "$DESTDIR" ] || ! getent group paddock >/dev/null || groupdel paddock
    say "Removed, with settings and data. Containers of it that still run: docker ps --filter label=paddock.instance"
else
    if have crun; then say "crun stays registered with the engine, if it is: sandboxes that run on were created with it."; fi
    say "Removed. Kept: $DESTDIR/etc/paddock, $state, $DESTDIR/var/log/paddock, and the sandboxes, which run on."
fi
