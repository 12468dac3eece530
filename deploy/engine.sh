#!/usr/bin/env bash
# The Docker Engine: uses the one that answers; otherwise installs Debian's (where it may) and starts it.
#   deploy/engine.sh start | stop [--force] | status
# `stop` ends only an engine that `start` has started, and not while containers run that are not Paddock's.
# Settings: DOCKER_HOST, PADDOCK_ENGINE_STATE_DIR, PADDOCK_ENGINE_TIMEOUT (seconds), PADDOCK_DOCKERD_ARGS (more arguments for dockerd),
# PADDOCK_CRUN (no: crun is neither installed nor registered with an engine that is started from here),
# PADDOCK_ENGINE_IN_MEMORY (yes: an engine that is started without an init system has its data in memory, if there is enough;
# it begins with what PADDOCK_ENGINE_DATA has, and all of it is gone at `stop`), PADDOCK_ENGINE_DATA (/var/lib/docker).
# Never two engines in one network namespace: they take bridges and firewall rules from each other.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/crun.sh
. "$ROOT/deploy/lib/crun.sh"

pid_file=$PADDOCK_ENGINE_STATE_DIR/dockerd.pid
log_file=$PADDOCK_ENGINE_STATE_DIR/dockerd.log
systemd_mark=$PADDOCK_ENGINE_STATE_DIR/started-by-systemd
timeout_seconds=${PADDOCK_ENGINE_TIMEOUT:-60}
data=${PADDOCK_ENGINE_DATA:-/var/lib/docker}
data_in_memory=$PADDOCK_ENGINE_STATE_DIR/data
room_kib=$((10 << 20)) # for containers, beside the images

systemd_works() { [ -d /run/systemd/system ] && have systemctl && systemctl show --property=Version >/dev/null 2>&1; }
version() { docker version --format '{{.Server.Version}}' 2>/dev/null; }

wait_until_it_answers() {
    local began=$SECONDS pid=${1:-}
    until engine_answers; do
        if [ -n "$pid" ] && ! kill -0 "$pid" 2>/dev/null; then
            show_log
            rm -f "$pid_file"
            die "the Docker Engine ended while it started (the end of its log is above)." "Fix the error, then run: deploy/engine.sh start"
        fi
        if [ $((SECONDS - began)) -ge "$timeout_seconds" ]; then
            show_log
            die "the Docker Engine did not answer at $DOCKER_HOST within $timeout_seconds s." \
                "Its log's last lines are above. It is left running: deploy/engine.sh status tells more, deploy/engine.sh stop ends it."
        fi
        if [ -t 1 ]; then printf '\r    waiting for the engine ... %ds ' $((SECONDS - began)); fi
        sleep 0.3
    done
    if [ -t 1 ]; then printf '\r\033[K'; fi
    say "    the engine answers after $((SECONDS - began)) s: Docker Engine $(version)"
}

show_log() {
    if [ -e "$systemd_mark" ]; then
        journalctl --no-pager -n 20 -u docker 2>/dev/null | sed 's/^/    | /' >&2 || true
    elif [ -r "$log_file" ]; then
        grep -v 'level=info' "$log_file" | tail -n 20 | sed 's/^/    | /' >&2
    fi
}

install_engine() {
    may_install "Docker Engine"
    step "Installing the Docker Engine from $(os_name)'s own packages"
    local packages=(docker.io iptables)
    # Newer releases keep the docker command in a package of its own.
    apt_update
    if apt-cache show docker-cli 2>/dev/null | grep -q '^Package: docker-cli$'; then packages+=(docker-cli); fi
    if debian_has_crun; then packages+=(crun); fi
    apt_install "${packages[@]}"
    mkdir -p "$PADDOCK_ENGINE_STATE_DIR"
    printf '%s\n' "${packages[@]}" >"$PADDOCK_ENGINE_STATE_DIR/installed-packages"
}

start_by_systemd() {
    step "Starting the Docker Engine (systemctl start docker)"
    : >"$systemd_mark"
    systemctl start docker || {
        show_log
        rm -f "$systemd_mark"
        die "systemctl could not start docker." "See: systemctl status docker"
    }
    wait_until_it_answers
    register_crun
}

# The pid of a dockerd that shares our network namespace. A second one there would take docker0 and the firewall's rules from it.
engine_next_door() {
    local comm pid
    for comm in /proc/[0-9]*/comm; do
        [ "$(cat "$comm" 2>/dev/null)" = dockerd ] || continue
        pid=${comm#/proc/} pid=${pid%/comm}
        if [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink /proc/self/ns/net)" ]; then
            printf '%s' "$pid"
            return
        fi
    done
    return 1
}

# Each container that ends has its layer unmounted, and then a file system on a disk writes out all that it holds back: a third
# of what thousands of containers cost.
hold_data_in_memory() {
    local available limit used=0
    available=$(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo)
    for limit in $(cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null); do # of a container
        if [ "$limit" != max ] && [ $((limit >> 10)) -lt "$available" ]; then available=$((limit >> 10)); fi
    done
    if [ -d "$data" ]; then used=$(du -skx "$data" | cut -f1); fi
    if [ "$available" -lt $((2 * used + room_kib)) ]; then
        say "    its data stay on the disk: $((available >> 20)) GiB of memory are free, it takes $(((2 * used + room_kib) >> 20))"
        return 1
    fi
    mkdir -p "$data_in_memory"
    mount -t tmpfs -o "size=$((used + room_kib))k,mode=0710" paddock-engine "$data_in_memory" || return 1
    if [ -d "$data" ] && ! cp -a "$data/." "$data_in_memory"; then
        drop_data_in_memory
        return 1
    fi
}

drop_data_in_memory() {
    [ -d "$data_in_memory" ] || return 0
    if mountpoint -q "$data_in_memory"; then umount -R "$data_in_memory" || umount -R -l "$data_in_memory"; fi
    rmdir "$data_in_memory"
}

start_by_hand() {
    local args=() stale pid
    if pid=$(engine_next_door); then
        die "a Docker Engine runs already (pid $pid) but does not answer at $DOCKER_HOST; a second one would break its networks." \
            "If it listens elsewhere, say where (DOCKER_HOST) or unset DOCKER_HOST. If it hangs, stop that one first."
    fi
    case $DOCKER_HOST in
        unix:///var/run/docker.sock) ;; # dockerd's own default
        *) args+=(--host "$DOCKER_HOST") ;;
    esac
    # shellcheck disable=SC2206 # words on purpose
    args+=(${PADDOCK_DOCKERD_ARGS:-})
    drop_data_in_memory # of one that was killed
    if [ "${PADDOCK_ENGINE_IN_MEMORY:-}" = yes ] && hold_data_in_memory; then args+=(--data-root "$data_in_memory"); fi
    mapfile -t -O "${#args[@]}" args < <(crun_options)
    if [ "$DOCKER_HOST" = unix:///var/run/docker.sock ] && [ -z "${PADDOCK_DOCKERD_ARGS:-}" ] && stale=$(cat /var/run/docker.pid 2>/dev/null) && [ "$(cat "/proc/$stale/comm" 2>/dev/null)" != dockerd ]; then
        rm -f /var/run/docker.pid # left by an engine that was killed; dockerd would refuse if another program has its number now
    fi
    step "Starting the Docker Engine in the background, as no init system runs here: dockerd${args:+ ${args[*]}}"
    say "    log: $log_file"
    # A session of its own, so that it outlives this shell and its terminal.
    setsid nohup dockerd "${args[@]}" >"$log_file" 2>&1 </dev/null &
    pid=$!
    write_pid "$pid_file" "$pid"
    wait_until_it_answers "$pid"
}

start() {
    if engine_answers; then
        say "Docker Engine $(version) answers at $DOCKER_HOST: using it."
        return
    fi
    case $DOCKER_HOST in
        unix://*) ;;
        *) die "no Docker Engine answers at $DOCKER_HOST (from DOCKER_HOST)." \
            "Only an engine on this machine can be started from here. Repair that one, or unset DOCKER_HOST." ;;
    esac
    if ! have docker && [ -S "${DOCKER_HOST#unix://}" ]; then
        die "there is an engine's socket at ${DOCKER_HOST#unix://}, but no docker command to ask it with." "Install the Docker client, then run this again."
    fi
    if ! have dockerd; then
        install_engine
        # The package may have had an init system start it, in the background.
        if [ "$DOCKER_HOST" = unix:///var/run/docker.sock ] && engine_next_door >/dev/null; then wait_until_it_answers; fi
    fi
    if engine_answers; then # the package's own service start did it
        if systemd_works; then
            : >"$systemd_mark"
            register_crun
        fi
        say "Docker Engine $(version) answers at $DOCKER_HOST."
        return
    fi
    is_root || die "a Docker Engine is installed but does not answer at $DOCKER_HOST, and starting it needs root." \
        "Run this again as root, or start it yourself; if it runs, join the group that owns its socket."
    mkdir -p "$PADDOCK_ENGINE_STATE_DIR"
    if systemd_works && [ "$DOCKER_HOST" = unix:///var/run/docker.sock ] && [ -z "${PADDOCK_DOCKERD_ARGS:-}" ]; then
        start_by_systemd
    elif pid=$(live_pid "$pid_file" dockerd); then
        say "An engine that this script started (pid $pid) is still coming up."
        wait_until_it_answers "$pid"
    else
        start_by_hand
    fi
}

refuse_while_others_run() {
    local all ours foreign
    all=$(timeout 15 docker ps -q --no-trunc | sort) || return 0
    ours=$(timeout 15 docker ps -q --no-trunc --filter label=paddock.instance | sort)
    foreign=$(comm -23 <(printf '%s\n' "$all") <(printf '%s\n' "$ours") | sed '/^$/d' | wc -l)
    [ "$foreign" -eq 0 ] || die "$foreign running containers are not Paddock's: the engine is left running for them." \
        "See them with: docker ps    Stop the engine all the same with: deploy/engine.sh stop --force"
}

stop() {
    local pid
    if [ -e "$systemd_mark" ]; then
        [ "${1:-}" = --force ] || refuse_while_others_run
        step "Stopping the Docker Engine (systemctl stop docker)"
        systemctl stop docker.socket docker.service
        rm -f "$systemd_mark"
    elif pid=$(live_pid "$pid_file" dockerd); then
        [ "${1:-}" = --force ] || refuse_while_others_run
        step "Stopping the Docker Engine that this script started (pid $pid)"
        stop_pid "$pid" 60 || die "the Docker Engine (pid $pid) did not end within 60 s." "Its log: $log_file"
        rm -f "$pid_file" "$log_file"
        drop_data_in_memory
    else
        rm -f "$pid_file"
        drop_data_in_memory # of one that was killed
        say "No Docker Engine was started from here: nothing to stop."
    fi
    rmdir "$PADDOCK_ENGINE_STATE_DIR" 2>/dev/null || true # only if nothing else is in it
}

status() {
    local pid
    if engine_answers; then say "Docker Engine $(version) answers at $DOCKER_HOST."; else say "No Docker Engine answers at $DOCKER_HOST."; fi
    if pid=$(live_pid "$pid_file" dockerd); then
        say "Started from here: pid $pid, log $log_file"
    elif [ -e "$systemd_mark" ]; then
        say "Started from here by systemd: journalctl -u docker"
    else
        say "Not started from here."
    fi
    engine_answers
}

case ${1:-} in
    start | stop | status) "$@" ;;
    *) die "no command given; use: deploy/engine.sh start | stop [--force] | status" ;;
esac
