#!/usr/bin/env bash
# The daemon (`paddock serve`) in the background, for a machine without an init system or a developer's desk.
#   deploy/daemon.sh start | stop | restart | status | logs [--follow] [--tail LINES]
# `stop` leaves the sandboxes as they are: the daemon takes them up again at its next start.
# Settings: PADDOCK_STATE_DIR, PADDOCK_SOCKET, PADDOCK_METRICS_PORT, PADDOCK_VENV, PADDOCK_DAEMON_TIMEOUT (seconds until it has to be ready).
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

pid_file=$PADDOCK_STATE_DIR/daemon.pid
log_file=$PADDOCK_STATE_DIR/daemon.log
mark=$PADDOCK_STATE_DIR/.made-by-paddock-deploy # deploy/clean.sh removes no folder without it
timeout_seconds=${PADDOCK_DAEMON_TIMEOUT:-60}
export PADDOCK_STATE_DIR PADDOCK_SOCKET PADDOCK_METRICS_PORT PADDOCK_DOCKER_HOST=$DOCKER_HOST # the daemon's own settings
export PADDOCK_STANDBY=${PADDOCK_STANDBY:-false} # who waits here wants a daemon now, or to hear who has its store

ask() { "$PADDOCK_VENV/bin/python" -I "$ROOT/deploy/lib/ready.py" "$PADDOCK_SOCKET"; }
show_log() {
    say "The end of $log_file:" >&2
    tail -n 20 "$log_file" | sed 's/^/    | /' >&2
}

wait_until_ready() {
    local pid=$1 began=$SECONDS answer
    until answer=$(ask); do
        if [ -z "$(live_pid "$pid_file" paddock)" ]; then
            show_log
            rm -f "$pid_file"
            die "the daemon ended while it started." "Its log (above) says why and what to do; then run: deploy/daemon.sh start"
        fi
        if [ $((SECONDS - began)) -ge "$timeout_seconds" ]; then
            show_log
            die "the daemon (pid $pid) is not ready after $timeout_seconds s: $answer" \
                "It is left running: deploy/daemon.sh status asks it again, deploy/daemon.sh stop ends it."
        fi
        if [ -t 1 ]; then printf '\r    waiting for the daemon ... %ds ' $((SECONDS - began)); fi
        sleep 0.2
    done
    if [ -t 1 ]; then printf '\r\033[K'; fi
    say "    ready after $((SECONDS - began)) s (pid $pid, log $log_file)"
}

start() {
    local pid
    [ -x "$PADDOCK_VENV/bin/paddock" ] || die "there is no paddock command in $PADDOCK_VENV." "Make it with: deploy/venv.sh"
    if pid=$(live_pid "$pid_file" paddock); then
        if ask >/dev/null; then
            say "The daemon runs already (pid $pid) and is ready."
        else
            say "The daemon runs already (pid $pid); waiting until it is ready."
            wait_until_ready "$pid"
        fi
        return
    fi
    if [ -S "$PADDOCK_SOCKET" ] && ask >/dev/null; then
        say "A daemon that was not started from here answers at $PADDOCK_SOCKET: using it."
        return
    fi
    step "Starting the daemon: paddock serve"
    if [ ! -d "$PADDOCK_STATE_DIR" ] || [ -z "$(ls -A "$PADDOCK_STATE_DIR")" ]; then
        if ! { mkdir -p "$PADDOCK_STATE_DIR" && chmod 0750 "$PADDOCK_STATE_DIR" && : >"$mark"; }; then
            die "the state folder $PADDOCK_STATE_DIR cannot be created." "Run this as root, or name another: PADDOCK_STATE_DIR=/path make up"
        fi
    fi
    touch "$log_file" || die "$log_file cannot be written." "Run this as root, or name another folder: PADDOCK_STATE_DIR=/path make up"
    # A session of its own, so that it outlives this shell and its terminal.
    setsid nohup "$PADDOCK_VENV/bin/paddock" serve >>"$log_file" 2>&1 </dev/null &
    pid=$!
    write_pid "$pid_file" "$pid"
    wait_until_ready "$pid"
}

stop() {
    local pid
    if pid=$(live_pid "$pid_file" paddock); then
        step "Stopping the daemon (pid $pid)"
        stop_pid "$pid" 40 || die "the daemon (pid $pid) did not end within 40 s." "Its log: $log_file"
        rm -f "$pid_file"
        say "    stopped; sandboxes keep running"
    elif [ -S "$PADDOCK_SOCKET" ] && ask >/dev/null 2>&1; then
        say "The daemon at $PADDOCK_SOCKET was not started from here: left alone. Stop it where it was started (systemctl stop paddock?)."
    else
        rm -f "$pid_file"
        say "No daemon runs."
    fi
}

status() {
    local pid answer rc=0
    if pid=$(live_pid "$pid_file" paddock); then say "The daemon runs: pid $pid, log $log_file"; else say "No daemon was started from here."; fi
    [ -x "$PADDOCK_VENV/bin/python" ] || return 3
    answer=$(ask) || rc=$?
    say "$PADDOCK_SOCKET: $answer"
    return "$rc"
}

# logs [--follow] [--tail LINES]: all of it, unless --tail says less.
logs() {
    local lines=+1 follow=()
    while [ $# -gt 0 ]; do
        case $1 in
            -f | --follow) follow=(--follow --retry) ;;
            --tail=*) lines=${1#--tail=} ;;
            --tail)
                lines=${2:-}
                shift
                ;;
            *) die "unknown argument: $1" "Use: deploy/daemon.sh logs [--follow] [--tail LINES]" ;;
        esac
        shift
    done
    [[ "$lines" =~ ^\+?[0-9]+$ ]] || die "--tail takes a number of lines."
    [ -r "$log_file" ] || die "there is no log at $log_file: no daemon was started from here." "A service's is shown by: journalctl -u paddock"
    exec tail --lines="$lines" "${follow[@]}" "$log_file"
}

case ${1:-} in
    start | stop | status) "$1" ;;
    logs)
        shift
        logs "$@"
        ;;
    restart)
        stop
        start
        ;;
    *) die "no command given; use: deploy/daemon.sh start | stop | restart | status | logs" ;;
esac
