# shellcheck shell=bash
# What the deploy scripts share: words on the terminal, progress, Debian packages, pid files.
# Sourced, never run. Settings are environment variables with defaults, so that a second world can live beside the first.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:${PADDOCK_SBIN:-/usr/sbin:/sbin} # dockerd, iptables: not on the path of every shell

if [ "$(id -u)" -eq 0 ]; then # the daemon's own defaults: controller/settings.py
    : "${PADDOCK_STATE_DIR:=/var/lib/paddock}"
    : "${PADDOCK_SOCKET:=/run/paddock/paddock.sock}"
else
    : "${PADDOCK_STATE_DIR:=${XDG_STATE_HOME:-$HOME/.local/state}/paddock}"
    : "${PADDOCK_SOCKET:=${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/paddock.sock}}"
    : "${PADDOCK_SOCKET:=/run/paddock/paddock.sock}"
fi
: "${PADDOCK_METRICS_PORT:=9464}"
: "${PADDOCK_ENGINE_STATE_DIR:=/var/lib/paddock-engine}" # apart from the daemon's state: it outlives that
: "${PADDOCK_VENV:=$ROOT/.venv}"
: "${PADDOCK_OS_RELEASE:=/etc/os-release}"
# One engine for the daemon and for every script: without this the docker command follows its current context instead.
DOCKER_HOST=${PADDOCK_DOCKER_HOST:-${DOCKER_HOST:-unix:///var/run/docker.sock}}
export DOCKER_HOST

say() { printf '%s\n' "$*"; }
step() { if [ -t 1 ]; then printf '\033[1m==> %s\033[0m\n' "$*"; else printf '==> %s\n' "$*"; fi; }
warn() { printf 'warning: %s\n' "$*" >&2; }
# die WHAT_HAPPENED [WHAT_TO_DO_NEXT]...
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" -eq 0 ]; }

# remove_folders FOLDER...: with all that is in them, but with nothing of what is mounted below them: folders of this host
# that are bound into sandboxes are, and whoever deletes below such a mount deletes somebody's files. Mounts of ours go.
remove_folders() {
    local folder each
    for folder in "$@"; do
        [ -e "$folder" ] || continue
        while read -r each; do umount --lazy -- "$(printf '%b' "$each")" || true; done < <(mounts_below "$folder" | tac)
        [ -z "$(mounts_below "$folder")" ] ||
            die "something is mounted below $folder, and could not be unmounted; the folder is left as it is." \
                "Unmount it (findmnt shows it), then do this again."
        rm -rf --one-file-system -- "$folder"
    done
}
# mounts_below FOLDER: where something is mounted, outermost first, as the kernel writes it (a blank is \040).
mounts_below() { awk -v root="$(realpath -- "$1")" '$5 == root || index($5, root "/") == 1 {print $5}' /proc/self/mountinfo; }

# progress LABEL COMMAND...: runs it with its output in a log; shows the seconds on a terminal, and the log's end when it fails.
progress() {
    local label=$1 log child began=$SECONDS rc=0
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/paddock-step.XXXXXX")
    "$@" >"$log" 2>&1 </dev/null &
    child=$!
    # A background child ignores the terminal's Ctrl-C: pass it on.
    trap 'kill "$child" 2>/dev/null || true; rm -f "$log"; exit 130' INT TERM
    if [ -t 1 ]; then
        while kill -0 "$child" 2>/dev/null; do
            printf '\r    %s ... %ds ' "$label" $((SECONDS - began))
            sleep 0.2
        done
        printf '\r\033[K'
    else
        say "    $label ..."
    fi
    wait "$child" || rc=$?
    trap - INT TERM
    if [ "$rc" -ne 0 ]; then
        say "    $label: failed after $((SECONDS - began)) s (exit code $rc). The end of its output:" >&2
        tail -n 25 "$log" | sed 's/^/    | /' >&2
    else
        say "    $label: done in $((SECONDS - began)) s"
    fi
    rm -f "$log"
    return "$rc"
}

# on_debian: is this Debian, Ubuntu or a child of theirs, where packages come by apt-get?
on_debian() {
    [ -r "$PADDOCK_OS_RELEASE" ] && have apt-get &&
        (
            # shellcheck disable=SC1090
            . "$PADDOCK_OS_RELEASE"
            case " ${ID:-} ${ID_LIKE:-} " in *" debian "* | *" ubuntu "*) exit 0 ;; *) exit 1 ;; esac
        )
}

os_name() {
    # shellcheck disable=SC1090
    (. "$PADDOCK_OS_RELEASE" 2>/dev/null && printf '%s' "${PRETTY_NAME:-${ID:-}}") || printf 'this system'
}

# may_install WHAT: refuses, politely, where packages cannot be installed by us.
may_install() {
    on_debian || die "$1 is missing, and $(os_name) is not Debian or Ubuntu: this script installs nothing there." \
        "Install $1 with your system's package manager, then run this again."
    [ "${PADDOCK_INSTALL:-}" != no ] || die "$1 is missing on this host, and a build in the background installs nothing." \
        "Install $1 (apt-get install $1), or run images/build.sh as root."
    is_root || die "$1 is missing, and installing it needs root." "Run this again as root (sudo make up), or install $1 yourself first."
}

# apt_update: renews the package lists (a fresh machine has none), once a run.
apt_update() {
    [ -z "${apt_updated:-}" ] || return 0
    progress "apt-get update" apt-get -q -o DPkg::Lock::Timeout=120 update ||
        warn "the package lists could not be renewed; trying with those that are here"
    apt_updated=yes
}

# apt_install PACKAGE...: says what it installs, never asks.
apt_install() {
    say "    Debian packages to install: $*"
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
    apt_update
    progress "apt-get install $*" apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" ||
        die "apt-get could not install: $*" "Repair that (its output is above), then run this again: what is done already is not repeated."
}

# Pid files hold "pid starttime": a number that some other program has got since is never taken for ours.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
write_pid() { printf '%s %s\n' "$2" "$(start_time "$2")" >"$1"; }
# live_pid FILE WORD: prints the pid if that very process lives and WORD is in its command line.
live_pid() {
    local pid started
    [ -r "$1" ] || return 1
    read -r pid started <"$1" || return 1
    [[ "$pid" =~ ^[0-9]+$ ]] && [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] || return 1
    { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -q -- "$2" || return 1
    printf '%s' "$pid"
}
# stop_pid PID SECONDS: SIGTERM, then waits; fails if it is still there.
stop_pid() {
    local pid=$1 tries=$(($2 * 5)) started
    started=$(start_time "$pid")
    kill -TERM "$pid" 2>/dev/null || return 0
    while [ "$tries" -gt 0 ]; do
        # A zombie has ended: only its parent has not looked yet.
        if [ "$(start_time "$pid")" != "$started" ] || grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; then return 0; fi
        sleep 0.2
        tries=$((tries - 1))
    done
    return 1
}

engine_answers() { have docker && timeout 15 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
need_engine() {
    engine_answers || die "no Docker Engine answers at $DOCKER_HOST." "Start one with: deploy/engine.sh start"
}

# paddock ARGUMENTS...: the command line of this checkout, spoken to this world's daemon.
paddock() { PADDOCK_SERVER=${PADDOCK_SERVER:-unix://$PADDOCK_SOCKET} "$PADDOCK_VENV/bin/paddock" "$@"; }
