#!/usr/bin/env bash
# Every test, on a real engine and on both stores: sets up what they need, runs pytest, and takes down what it started.
#   deploy/test.sh [--quick|--coverage|--mcp|--e2b|--kubectl|--frontdoor|--panel|--bench|--drills|--soak|--newer|--v2|--compose|--systemd|--images|--first-hour|--fleet] [pytest's arguments]...
# --quick needs no engine and no PostgreSQL: what is decided, stored in SQLite, asked for and shown, in about two minutes.
# --coverage runs the same tests as none, some times slower, and ends with the lines of controller/ that none of them runs.
# --e2b drives E2B's own clients (tests/README.md), in some minutes.
# --frontdoor drives OpenSSH, rsync, git, Chromium, Caddy and nginx, with sshd beside, in ten minutes; PADDOCK_SCP_MIB (256) is the
# size of the file that scp copies. What can't be installed is left out, and said.
# --kubectl drives kubectl of three versions (tests/sdk/test_kubectl.py), in a minute.
# --mcp drives MCP clients of others (tests/mcp/README.md) against real sandboxes, in some minutes.
# Beside a whole run (no arguments) go deploy/check.sh, and the engine's contract and the essentials of the end-to-end tests on
# Engine 28.5 with the containerd image store, in a lab of its own; in CI a run fails where its packages can't be had.
# --newer runs all tests of the engine and from end to end there (PADDOCK_LAB_ENGINE: 26 or 28, PADDOCK_LAB_STORE: overlay2 or containerd).
#   deploy/test.sh --dashboards [--minutes N] [folder]   draws the dashboards of a busy Paddock instead
# PADDOCK_TEST_PANEL=1 and PADDOCK_TEST_MCP=1 have a whole run include the tests of --panel and --mcp; with PADDOCK_TEST_CHECKED=yes
# deploy/check.sh is left out, as .ci/run runs it before.
# Settings: SOAK_MINUTES (30), PADDOCK_TEST_WORKERS (three more than there are processors, for most tests wait for the engine),
# PADDOCK_TEST_POSTGRES (a server of yours, instead of a throw-away one).
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

how=(pytest)
whole=
if [ $# -eq 0 ]; then whole=yes; fi
images=(tiny python egress agent)
pictures=
mcp=
compose=
e2b=
kubectl=
panel=
fleet=
frontdoor=
v2=
coverage=
folders=
# What newer engines and the containerd image store do in another way; two and a half minutes.
essentials=(tests/contract/test_engine_contract.py tests/contract/test_engine_unchanged.py tests/contract/test_images_contract.py tests/e2e/test_smoke.py)
essentials+=(tests/e2e/test_files_kept.py::test_idle_sandbox_has_its_files_at_the_next_use)
essentials+=(tests/e2e/test_contexts.py::test_variables_stay_between_two_calls)
essentials+=(tests/e2e/test_front_door.py::test_a_command_keeps_streams_input_and_exit_code)
processors=$(nproc)
selection=(-n "${PADDOCK_TEST_WORKERS:-$((processors + 3))}" --dist loadgroup --durations 25)
if [ "${1:-}" = --quick ]; then
    shift
    "$ROOT/deploy/venv.sh" --dev
    cd "$ROOT"
    unset PYTHONDONTWRITEBYTECODE "${!PADDOCK_TEST_@}" # what asks for an engine or a server
    folders=(plan kinds documents policy service loop cli client metrics store contract archive architecture docs)
    [ $# -gt 0 ] || export PADDOCK_TEST_QUICK=1 # leave out what takes long in them
    exec "$PADDOCK_VENV/bin/python" -m pytest -n "$processors" --dist loadgroup -p no:schemathesis --durations 10 --hypothesis-profile quick "${@:-${folders[@]/#/tests/}}"
elif [ "${1:-}" = --coverage ]; then
    shift
    coverage=yes
    how=(coverage run -m pytest)
elif [ "${1:-}" = --mcp ]; then
    shift
    mcp=yes
    export PADDOCK_TEST_MCP=1 PADDOCK_TEST_DOCKER=1
    images=(tiny python egress agent model-tiny)
    selection=(-n "${PADDOCK_TEST_WORKERS:-$((processors + 1))}" --dist loadgroup --durations 15 -m mcp tests/mcp tests/sdk)
elif [ "${1:-}" = --e2b ]; then
    shift
    e2b=yes
    export PADDOCK_TEST_E2B=1 PADDOCK_TEST_DOCKER=1
    images=(tiny python egress agent data)
    selection=(-n 0 --durations 15 -m e2b tests/e2b_clients)
elif [ "${1:-}" = --kubectl ]; then
    shift
    kubectl=yes
    export PADDOCK_TEST_KUBECTL=1 PADDOCK_TEST_DOCKER=1
    images=(tiny agent)
    selection=(-n 0 --durations 15 -m kubectl tests/sdk/test_kubectl.py)
elif [ "${1:-}" = --bench ]; then
    shift
    export PADDOCK_BENCH=1
    selection=(-n 0 -s -m bench) # figures are taken one at a time
elif [ "${1:-}" = --drills ]; then
    shift
    export PADDOCK_DRILLS=1
    selection=(-n 0 tests/drills) # times to recover, too; the table is printed at the end
elif [ "${1:-}" = --dashboards ]; then
    shift
    pictures=yes
elif [ "${1:-}" = --newer ]; then
    shift
    how=(tests.lab.newer pytest) # the engine's contract, and all from end to end, on a later Debian's engine
    selection=(-n "${PADDOCK_TEST_WORKERS:-$processors}" --dist loadgroup -o timeout=300 --durations 25 -m docker)
    for argument in "$@"; do if [ "${argument#tests/}" != "$argument" ]; then folders=no; fi; done
    [ -n "$folders" ] || selection+=(tests/contract tests/engine tests/e2e tests/security tests/sdk)
elif [ "${1:-}" = --v2 ]; then
    shift
    how=(tests.lab.v2 pytest) # figures, AppArmor and volumes, in a machine with cgroup v2 that is wholly root's
    images=(tiny python agent)
    v2=yes
    selection=(-n 0 -p no:cacheprovider -p no:schemathesis -o timeout=900 tests/engine/test_engine_witness.py)
    selection+=(tests/engine/test_engine_volumes.py tests/contract/test_mounts_contract.py) # it may do more here: CAP_SYS_RESOURCE
    selection+=(tests/e2e/test_metrics.py tests/e2e/test_apparmor.py tests/contract/test_hibernation_contract.py)
    # One of each capability that holds on to what is in a sandbox, or starts it in another way.
    selection+=(tests/engine/test_engine_runtimes.py tests/engine/test_engine_without_network.py tests/e2e/test_files_kept.py)
    selection+=(tests/e2e/test_snapshots.py::test_a_rollback_gives_back_all_files_once)
    selection+=(tests/e2e/test_contexts.py::test_variables_stay_between_two_calls)
    selection+=(tests/e2e/test_front_door.py::test_a_command_keeps_streams_input_and_exit_code)
elif [ "${1:-}" = --compose ]; then
    shift
    export PADDOCK_TEST_COMPOSE=1
    images=(tiny python egress)
    compose=yes
    selection=(-n 0 -m compose)
elif [ "${1:-}" = --systemd ]; then
    shift
    export PADDOCK_TEST_SYSTEMD=1
    selection=(-n 0 -m systemd)
elif [ "${1:-}" = --images ]; then
    shift
    export PADDOCK_TEST_IMAGES=1
    images+=(data node bun deno toolchain model-tiny)
    selection=(-n 0 -m images)
elif [ "${1:-}" = --first-hour ]; then
    shift
    export PADDOCK_TEST_FIRST_HOUR=1
    selection=(-n 0 -m first_hour tests/first_hour) # it brings an engine and images of its own
elif [ "${1:-}" = --frontdoor ]; then
    shift
    export PADDOCK_TEST_FRONTDOOR=1 PADDOCK_TEST_DOCKER=1
    frontdoor=yes
    images=(tiny python ide)
    selection=(-n 0 -s --durations 15 -o timeout=900 -m frontdoor tests/e2e/test_front_door_matrix.py tests/frontdoor)
elif [ "${1:-}" = --fleet ]; then
    shift
    fleet=yes
    export PADDOCK_TEST_FLEET=1 PADDOCK_TEST_DOCKER=1
    images=(tiny python agent)
    selection=(-n 0 -o timeout=600 --durations 10 -m fleet tests/fleet tests/contract/test_scheduler_contract.py) # three engines and three daemons are enough for a small machine
elif [ "${1:-}" = --panel ]; then
    shift
    export PADDOCK_TEST_PANEL=1 PADDOCK_TEST_JOURNEY=1
    panel=yes
    images=(tiny python agent)
    selection=(-n 0 --durations 10)
elif [ "${1:-}" = --soak ]; then
    shift
    export PADDOCK_SOAK=1
    selection=(-n 0 tests/soak) # a line of its table each minute
fi

# A clone's machine is shared with others: what fails there is run once more, and listed under RERUN. At a desk it fails.
again=()
if [ -n "${CI:-}" ]; then again=(--reruns 1 -raR); fi
selection+=("${again[@]}")

need_browser() {
    have chromium && return
    may_install chromium
    step "Installing the browser that the tests drive"
    apt_install chromium fonts-dejavu-core
}

# The panel's essential journey is part of a whole run where a browser is there already. To install one takes a minute, on
# two processors that have none to spare (tests/README.md): `make test-panel` does, and PADDOCK_TEST_PANEL=1.
packages=--dev
if [ -n "$whole" ]; then
    if [ -n "${PADDOCK_TEST_PANEL:-}" ]; then need_browser; fi
    if [ -n "${PADDOCK_TEST_MCP:-}" ]; then images+=(model-tiny); fi
    if have chromium; then
        packages=--panel
        export PADDOCK_TEST_JOURNEY=1
    else
        warn "the panel's journey is left out: no chromium is installed. \`make test-panel\` installs one, and runs it."
    fi
fi

scratch=
# What goes on beside: its process, while it does.
dressing= # the virtual environment
building= # the images, or clients of others
fetching= # the newer engine's packages
newer=    # the tests on it
newer_is_missing=
checks=   # deploy/check.sh
compiling= # the tests, for all workers
logs=$(mktemp -d "${TMPDIR:-/tmp}/paddock-test.XXXXXX")
engine_was_up=
pg_bin=
as_pg=()

finish() {
    local rc=$?
    trap - EXIT
    local each
    for each in $dressing $building $fetching $newer $checks $compiling; do
        kill "$each" 2>/dev/null || true
        wait "$each" || true # a lab takes its engine down
    done
    rm -rf "$logs"
    if [ -n "$scratch" ]; then
        if [ -e "$scratch/data/postmaster.pid" ]; then
            (cd / && "${as_pg[@]}" "$pg_bin/pg_ctl" --pgdata "$scratch/data" --mode immediate --wait stop >/dev/null 2>&1) || warn "the throw-away PostgreSQL did not stop: see $scratch"
        fi
        [ -e "$scratch/data/postmaster.pid" ] || rm -rf "$scratch"
    fi
    # In CI nothing is left running; at a desk the engine stays for the next run.
    if [ -n "${CI:-}" ] && [ -z "$engine_was_up" ]; then "$ROOT/deploy/engine.sh" stop || true; fi
    exit "$rc"
}
trap finish EXIT

find_postgres() {
    local found
    for found in "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb; do
        found=$(readlink -f "$found" 2>/dev/null) || continue
        if [ -x "$found" ] && [ -x "$(dirname "$found")/pg_ctl" ] && [ -x "$(dirname "$found")/postgres" ]; then pg_bin=$(dirname "$found"); fi
    done
    [ -n "$pg_bin" ]
}

# A throw-away cluster: reached by a socket in a folder of its own only, and careless about power cuts, which makes it quick.
# Its shared memory is in its folder: where a session manager tidies /dev/shm up, it would lose it.
start_postgres() {
    if ! find_postgres; then
        may_install postgresql
        step "Installing PostgreSQL for the tests"
        apt_install postgresql
        find_postgres || die "initdb and pg_ctl are still not there after installing postgresql."
    fi
    step "Starting a throw-away PostgreSQL"
    scratch=$(mktemp -d /tmp/paddock-test.XXXXXX) # short: a socket's path has little room
    local user
    user=$(id -un)
    if is_root; then # PostgreSQL refuses to run as root
        user=nobody
        if id postgres >/dev/null 2>&1; then user=postgres; fi
        as_pg=(runuser -u "$user" --)
        chown "$user" "$scratch"
    fi
    cd / # the checkout may be closed to that user
    progress "initdb" "${as_pg[@]}" "$pg_bin/initdb" --pgdata "$scratch/data" --username postgres --auth trust --encoding UTF8 --locale C --no-sync ||
        die "the throw-away PostgreSQL could not be created."
    progress "postgres" "${as_pg[@]}" "$pg_bin/pg_ctl" --pgdata "$scratch/data" --log "$scratch/log" --wait --timeout 60 \
        --options "-c listen_addresses='' -c unix_socket_directories=$scratch -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200 -c dynamic_shared_memory_type=mmap" start || {
        tail -n 20 "$scratch/log" >&2 || true
        die "the throw-away PostgreSQL did not start."
    }
    cd "$ROOT"
    export PADDOCK_TEST_POSTGRES="postgresql+psycopg://postgres@/postgres?host=$scratch"
}

# Prometheus, Alertmanager and their tools, for the tests of rules and dashboards: taken out of Debian's packages without
# installing them, which would start servers and have them started at every boot.
find_prometheus() {
    local folder=$ROOT/.cache/prometheus
    if have promtool && have prometheus && have amtool; then return 0; fi
    if [ ! -x "$folder/usr/bin/amtool" ] && on_debian; then
        step "Fetching Debian's prometheus for the tests"
        rm -rf "$folder"
        mkdir -p "$folder"
        apt_update
        (cd "$folder" && progress "fetching prometheus" apt-get -q download -o APT::Sandbox::User=root prometheus prometheus-alertmanager && for package in ./*.deb; do dpkg-deb -x "$package" .; done && rm -f ./*.deb) ||
            warn "Debian's prometheus could not be fetched; the tests that need it are left out"
    fi
    PATH=$PATH:$folder/usr/bin
}

# Programs that some tests drive; where they cannot be had, those tests say that they were skipped.
install_witnesses() {
    local shells=()
    for found in zsh fish; do have "$found" || shells+=("$found"); done
    if ! on_debian || ! is_root; then return 0; fi
    if have nft && have ssh && [ ${#shells[@]} -eq 0 ]; then return 0; fi
    step "Installing what some tests drive"
    have ssh || apt_install openssh-client || warn "the tests of SSH are skipped."
    have nft || apt_install nftables # without it the lab of networks would be skipped, and with it half of security
    [ ${#shells[@]} -eq 0 ] || (apt_install "${shells[@]}") || warn "the tests of these shells' completion are skipped."
}

# What several at once may want of Debian's lists is in them before: two can't renew them at once.
renew_lists() {
    local each
    on_debian && is_root || return 0
    for each in docker mmdebstrap nft zsh fish; do
        if ! have "$each"; then
            apt_update
            export apt_updated
            return
        fi
    done
}

# aside NAME COMMAND...: runs it beside what follows, with its output in $logs/NAME; its process is in $aside.
aside() {
    local name=$1
    shift
    "$@" >"$logs/$name" 2>&1 </dev/null &
    aside=$!
}
# joined PROCESS NAME: waits for it, and shows what it said; fails if it did.
joined() {
    local rc=0
    wait "$1" || rc=$?
    cat "$logs/$2"
    return "$rc"
}

# The newer engine's packages are fetched while images are built. Where they can't be had, the run says so; in CI it fails
# at its end.
fetched_newer() {
    local rc=0
    wait "$fetching" || rc=$?
    fetching=
    if [ "$rc" -ne 0 ]; then
        tail -n 3 "$logs/fetch" >&2
        warn "NOTHING is tested on a newer engine: it is not available here, see above. The following tests run on this host's engine only."
        [ -z "${CI:-}" ] || newer_is_missing=yes
    fi
    return "$rc"
}

cd "$ROOT"
# Hundreds of daemons and commands are started: where this is set, each would compile all of Paddock anew.
unset PYTHONDONTWRITEBYTECODE
if engine_answers; then engine_was_up=yes; fi
renew_lists
# Where it needs no Debian packages itself, the virtual environment is made while the engine starts.
if python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    aside venv deploy/venv.sh "$packages"
    dressing=$aside
fi
deploy/engine.sh start
if [ -n "$dressing" ]; then joined "$dressing" venv; else deploy/venv.sh "$packages"; fi
dressing=
if [ -n "$pictures" ]; then
    have chromium || { is_root && on_debian && apt_install chromium; } || warn "no chromium: the pages stay HTML"
    install_witnesses
    images/build.sh tiny egress
    find_prometheus
    step "Drawing the dashboards"
    "$PADDOCK_VENV/bin/python" -m tests.pictures "$@"
    exit
fi
if [ -n "$frontdoor" ]; then
    deploy/venv.sh --panel # with what drives a browser
    export PATH=$PATH:/usr/sbin:/sbin # sshd, nginx and ip, for those who are not root
    for package in openssh-client openssh-server rsync git nginx caddy chromium iproute2; do
        program=${package#openssh-}
        case $program in client) program=ssh ;; server) program=sshd ;; iproute2) program=ip ;; esac
        have "$program" || (may_install "$package" && apt_install "$package") || warn "without $package a part is skipped."
    done
    images/build.sh "${images[@]}"
    tests/frontdoor/apps/build.sh
    step "Driving SSH clients, browsers and proxies"
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" -ra "$@"
    exit
fi
if [ -n "$mcp" ]; then
    have nft || { is_root && on_debian && apt_install nftables; } || warn "without nft the tests of the four levels are skipped"
    aside clients deploy/mcp-clients.sh
    building=$aside
    images/build.sh "${images[@]}"
    joined "$building" clients
    building=
    step "Driving MCP clients of others"
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" "$@"
    exit
fi
if [ -n "$kubectl" ]; then
    deploy/kubectl.sh
    images/build.sh "${images[@]}"
    step "Driving kubectl"
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" "$@"
    exit
fi
if [ -n "$e2b" ]; then
    aside clients deploy/e2b-clients.sh
    building=$aside
    images/build.sh "${images[@]}"
    joined "$building" clients
    building=
    step "Driving E2B's own clients"
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" "$@"
    exit
fi
if [ -n "$panel" ]; then # a browser beside the daemon; no PostgreSQL
    need_browser
    deploy/venv.sh --panel
    images/build.sh "${images[@]}"
    export PADDOCK_TEST_DOCKER=1
    if [ $# -gt 0 ]; then # some of these were asked for
        "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" tests/panel "$@"
        exit
    fi
    rc=0
    step "Running the tests in a browser"
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" -n "$processors" --dist loadgroup --durations 10 tests/panel --ignore tests/panel/test_figures.py || rc=$?
    step "Taking the panel's figures, with nothing beside"
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" tests/panel/test_figures.py || rc=$?
    exit "$rc"
fi
if [ -n "$fleet" ]; then # the lab has a PostgreSQL of its own
    find_postgres || { may_install postgresql && apt_install postgresql; }
    images/build.sh "${images[@]}"
    step "Running the tests on several hosts"
    rc=0
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" "$@" || rc=$?
    [ $# -eq 0 ] || exit "$rc" # some of these were asked for
    images/build.sh egress
    install_witnesses
    [ -n "${PADDOCK_TEST_POSTGRES:-}" ] || start_postgres
    step "Running the end-to-end tests through the daemon of another host"
    export PADDOCK_TEST_FOREIGN=1
    selection=(-n "${PADDOCK_TEST_WORKERS:-$processors}" --dist loadgroup -o timeout=300 --durations 10 -m docker)
    if [ -n "${CI:-}" ]; then selection+=(--reruns 1 -raR); fi
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" tests/e2e tests/sdk tests/security/test_own_users.py || rc=$?
    exit "$rc"
fi
if [ -n "$v2" ]; then # all else is in the machine
    images/build.sh "${images[@]}"
    have qemu-system-x86_64 || { may_install qemu-system-x86 && apt_install qemu-system-x86; }
    have mmdebstrap || { may_install mmdebstrap && apt_install mmdebstrap; }
    step "Running the tests in a machine of their own"
    "$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" "$@"
    exit
fi
if [ -n "$whole" ]; then
    # It computes for most of a minute where nothing is cached: a worker would wait for it.
    if [ -z "${PADDOCK_TEST_CHECKED:-}" ]; then
        aside checks nice deploy/check.sh
        checks=$aside
    fi
    export PADDOCK_LAB_ENGINE=28 PADDOCK_LAB_STORE=containerd
    aside fetch "$PADDOCK_VENV/bin/python" -m tests.lab.newer --fetch
    fetching=$aside
fi
install_witnesses
# The images come of packages of their own; what is installed on this host meanwhile is another matter.
if [ -n "$compose" ]; then
    images/build.sh base "${images[@]}"
    step "Stand-ins for the images of public Compose projects"
    tests/compose/stand_in/build.sh
fi
aside images images/build.sh "${images[@]}"
building=$aside
if [ -n "$whole" ] && [ -n "${PADDOCK_TEST_MCP:-}" ]; then deploy/mcp-clients.sh; fi
# In a new checkout each worker would compile all tests, with the others at the same time; a run of some compiles no others.
if [ -n "$whole" ] && [ ! -d tests/api/__pycache__ ]; then
    aside compiled "$PADDOCK_VENV/bin/python" -m pytest --collect-only -q -p no:cacheprovider
    compiling=$aside
fi
[ -n "${PADDOCK_TEST_POSTGRES:-}" ] || start_postgres
find_prometheus
joined "$building" images
building=
if [ -n "$compiling" ]; then wait "$compiling" || true; fi # what is wrong with them, their run says
compiling=
export -n apt_updated
export PADDOCK_TEST_DOCKER=1 # docker-marked tests run, and fail rather than skip
if [ -n "$whole" ] && fetched_newer; then
    step "Beside the others: the essentials on Engine 28.5 with the containerd image store (Debian sid's)"
    aside newer "$PADDOCK_VENV/bin/python" -m tests.lab.newer pytest -n 1 -p no:cacheprovider -o timeout=300 -m docker "${again[@]}" "${essentials[@]}"
    newer=$aside
fi
if [ -n "$coverage" ]; then
    rm -rf .cache/coverage
    mkdir -p .cache/coverage
fi
step "Running the tests"
rc=0
"$PADDOCK_VENV/bin/python" -m "${how[@]}" "${selection[@]}" "$@" || rc=$?
if [ -n "$coverage" ]; then
    step "Lines that no test ran"
    "$PADDOCK_VENV/bin/coverage" combine --quiet
    "$PADDOCK_VENV/bin/coverage" report
fi
if [ -n "$checks" ]; then
    joined "$checks" checks || rc=1
    checks=
fi
if [ -n "$newer" ]; then
    if wait "$newer"; then
        newer=
        say "On the newer engine, too: $(grep -m 1 '^Docker Engine' "$logs/newer")"
    else
        newer=
        cat "$logs/newer" >&2
        die "there were failures on the newer engine; its run is shown above."
    fi
fi
[ -z "$newer_is_missing" ] || die "nothing was tested on Engine 28.5: its packages could not be had, see above." \
    "Debian's archive has to be in reach (apt), with sid's index."
exit "$rc"
