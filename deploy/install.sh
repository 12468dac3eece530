#!/usr/bin/env bash
# Installs this checkout's Paddock as a service of the host, or upgrades the one that is installed. Again: changes nothing.
#   PREFIX/lib/paddock/VERSION+HASH   a virtual environment of its own for each version; `current` is a link to the one in use
#   PREFIX/bin/paddock                the command
#   /etc/paddock/paddock.toml         settings; one that is there is kept
#   /etc/paddock/guard.nft            the guard of sandboxes' networks, with its unit (to be enabled by you)
#   /etc/systemd/system, /etc/tmpfiles.d, /etc/logrotate.d
# The data (/var/lib/paddock) stay as they are. An upgrade whose daemon does not get ready is taken back: the version before
# runs again, and where that cannot use the store any more, on the copy of the store that was made first.
# Where Debian has crun, it is installed and registered with the engine of this host, which goes on running.
# Settings: PREFIX (/usr/local), PYTHON (the interpreter), PADDOCK_DAEMON_TIMEOUT (seconds until a daemon has to be ready),
#   PADDOCK_CRUN (no: leave crun and the engine's settings alone),
#   DESTDIR (a folder in the place of /: nothing outside of it is touched; services only if DESTDIR/run/systemd/system is there).
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/installed.sh
. "$ROOT/deploy/lib/installed.sh"
# shellcheck source=lib/crun.sh
. "$ROOT/deploy/lib/crun.sh"

[ $# -eq 0 ] || die "unknown argument: $1" "Use: deploy/install.sh (its head lists the settings)"
[ -n "$DESTDIR" ] || is_root || die "installing needs root." "Run: sudo deploy/install.sh"
umask 022

# version_name: what the folder is called; any change of what is installed makes another one.
version_name() {
    local hash
    hash=$(cd "$ROOT" && find controller migrations images deploy/lib requirements.lock pyproject.toml -type f ! -name '*.pyc' -print0 |
        sort -z | xargs -0 sha256sum | sha256sum | cut -c1-8)
    printf '%s+%s' "$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' "$ROOT/controller/version.py")" "$hash"
}

make_version() {
    local folder=$lib/$1
    [ ! -e "$folder/.complete" ] || return 0
    step "Installing Paddock $1 to $folder"
    mkdir -p "$lib"
    PADDOCK_VENV=$folder "$ROOT/deploy/venv.sh" --copy
    installed "$1" -m controller version >/dev/null ||
        die "the new version does not run; nothing was changed." "The output above says why."
    : >"$folder/.complete"
}

# place FILE TARGET [MODE]: copies one file with the prefix filled in, if it is not there like this already.
place() {
    local target=$DESTDIR$2
    mkdir -p "$(dirname "$target")"
    sed "s|@PREFIX@|$PREFIX|g" "$ROOT/deploy/$1" >"$target.new"
    chmod "${3:-0644}" "$target.new"
    if cmp -s "$target.new" "$target"; then rm "$target.new"; else mv -f "$target.new" "$target"; fi
}

place_files() {
    place paddock.wrapper "$PREFIX/bin/paddock" 0755
    place paddock.service /etc/systemd/system/paddock.service
    place paddock-guard.service /etc/systemd/system/paddock-guard.service
    place paddock-guard.nft /etc/paddock/guard.nft
    place paddock.tmpfiles /etc/tmpfiles.d/paddock.conf
    place paddock.logrotate /etc/logrotate.d/paddock
    if [ -e "$config" ]; then
        say "    $config is kept"
    else
        place paddock.toml /etc/paddock/paddock.toml 0640
    fi
    mkdir -p "$DESTDIR/run/paddock"
    install -d -m 0750 "$DESTDIR/var/log/paddock"
    install -d -m 0700 "$state"
}

make_group() {
    if [ -n "$DESTDIR" ] || getent group paddock >/dev/null; then return 0; fi
    groupadd --system paddock || die "the group paddock could not be created." "Make it (groupadd --system paddock), then run this again."
}

# save_store VERSION: copies the embedded store before a new version migrates it; sets $saved (empty: there was nothing to copy).
save_store() {
    local target
    target=$state/before-upgrade-$(date -u +%Y%m%dT%H%M%SZ).db
    saved=$(installed "$1" "$ROOT/deploy/lib/installed.py" "$config" save "$target") ||
        die "the store could not be copied, so nothing was upgraded." "The output above says why."
    if [ -n "$saved" ]; then
        say "    the store is copied to $saved"
    else
        warn "no embedded store was found to copy; one in PostgreSQL is copied by its own tools (pg_dump), before an upgrade"
    fi
}

point_to() { # atomically: whoever starts the command finds the one version or the other
    ln -sfn "$1" "$lib/current.new"
    mv -T "$lib/current.new" "$lib/current"
}

# start_current: restarts the service; true once its daemon is ready.
start_current() {
    local socket began=$SECONDS answer
    systemctl restart paddock || return 1
    socket=$DESTDIR$(installed current "$ROOT/deploy/lib/installed.py" "$config" socket) || return 1
    until answer=$(installed current "$ROOT/deploy/lib/ready.py" "$socket"); do
        if [ $((SECONDS - began)) -ge "${PADDOCK_DAEMON_TIMEOUT:-60}" ]; then
            warn "the daemon is not ready: $answer"
            return 1
        fi
        sleep 0.2
    done
}

take_back() {
    local before=$1 name=$2
    warn "Paddock $name does not get ready; going back to $before"
    point_to "$before"
    if start_current; then return 0; fi
    [ -n "$saved" ] || return 1
    # Its schema may be newer than what this version can read. Nothing of value was written since: the new one never was ready.
    warn "$before does not get ready on the store as it is now; taking the copy from before"
    systemctl stop paddock
    installed "$before" -m controller restore --config "$config" "$saved" && start_current
}

forget_old_versions() { # but the one in use, and the one before it
    local folder
    for folder in "$lib"/*+*/; do
        folder=${folder%/}
        case ${folder##*/} in "$1" | "$2") continue ;; esac
        if [ -e "$folder/.paddock-made" ]; then rm -rf "$folder"; fi
    done
}

# A quicker start of sandboxes, and nothing that an installation could fail for.
offer_crun() {
    [ -z "$DESTDIR" ] && systemd_runs && engine_answers || return 0
    if ! have crun; then
        debian_has_crun || return 0
        step "Installing crun, which starts sandboxes in about half of runc's time (PADDOCK_CRUN=no: not)"
        (apt_install crun) || warn "crun could not be installed; sandboxes are started by runc."
    fi
    register_crun
}

without_systemd() {
    [ -z "$DESTDIR" ] || return 0
    say "systemd does not run here. Start the daemon, now and at boot, with:"
    say "    setsid nohup $PREFIX/bin/paddock serve >>/var/log/paddock/daemon.log 2>&1 </dev/null &"
    say "After an upgrade end the one before first (kill -TERM): sandboxes keep running, and the new daemon manages them."
}

name=$(version_name)
before=$(readlink "$lib/current" 2>/dev/null || true)
saved=
make_version "$name"
make_group
offer_crun
step "Putting Paddock $name in place"
place_files
if [ -n "$before" ] && [ "$before" != "$name" ] && [ -e "$lib/$before/.complete" ]; then save_store "$before"; else before=; fi
point_to "$name"
if systemd_runs; then
    systemctl daemon-reload
    systemctl enable --quiet paddock
    if ! start_current; then
        say "Its log: journalctl -u paddock" >&2
        [ -n "$before" ] || die "Paddock $name is installed, but its daemon does not get ready." "Run: $PREFIX/bin/paddock doctor"
        take_back "$before" "$name" ||
            die "neither does $before. The service is left as it is; no sandbox was touched." "Run: $PREFIX/bin/paddock doctor"
        die "Paddock $name did not get ready, so $before runs again." "journalctl -u paddock says why; then run this again."
    fi
    say "Paddock $name runs (systemctl status paddock). Next: paddock doctor"
else
    without_systemd
    say "Paddock $name is installed: $PREFIX/bin/paddock"
fi
forget_old_versions "$name" "$before"
