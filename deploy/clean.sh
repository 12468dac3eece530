#!/usr/bin/env bash
# Removes what `make up` and `make test` made, and nothing else: sandboxes, daemon, state, images, virtual environment, caches,
# and the engine if it was started from here. Folders without our mark, images that another checkout built, and containers of others stay.
# Settings: as for the other scripts; PADDOCK_KEEP_IMAGES=1 keeps the images (another Paddock on this engine may use them).
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

state_mark=$PADDOCK_STATE_DIR/.made-by-paddock-deploy
id= # of our store; empty if it is unknown

remove_sandboxes() {
    [ -e "$state_mark" ] || [ -e "$PADDOCK_STATE_DIR/daemon.pid" ] || return 0
    step "Removing the sandboxes"
    engine_answers ||
        die "no Docker Engine answers at $DOCKER_HOST, so the sandboxes cannot be removed; nothing was changed." "Start it with deploy/engine.sh start, then run make clean again."
    local deleted=
    if [ -x "$PADDOCK_VENV/bin/paddock" ] && "$ROOT/deploy/daemon.sh" start && paddock delete sandboxes --all --timeout=120s; then
        deleted=yes
    else
        warn "the daemon could not remove them; trying by label"
    fi
    "$ROOT/deploy/daemon.sh" stop
    # The last resort: our store's id is on every container of ours; one that bears another id, or none, is not ours.
    local containers networks mounts
    id=$("$PADDOCK_VENV/bin/python" -I "$ROOT/deploy/lib/instance_id.py" "$PADDOCK_STATE_DIR" || true)
    if [ -z "$id" ]; then
        [ -n "$deleted" ] || [ -z "$(docker ps -aq --filter label=paddock.instance)" ] ||
            die "the sandboxes could not be removed, and it is unknown which containers are ours; the state is kept." \
                "Repair the daemon (its log: $PADDOCK_STATE_DIR/daemon.log), then run make clean again."
        return 0
    fi
    mapfile -t containers < <(docker ps -aq --filter "label=paddock.instance=$id")
    mounts=${PADDOCK_MOUNTS_DIR:-/run/paddock/mounts}
    remove_folders "$mounts/$id" "$mounts/used/$id" # before the containers: the mounts are seen there, too
    if [ ${#containers[@]} -gt 0 ]; then progress "removing ${#containers[@]} containers by label" docker rm -f "${containers[@]}"; fi
    mapfile -t networks < <(docker network ls -q --filter "label=paddock.instance=$id")
    if [ ${#networks[@]} -gt 0 ]; then progress "removing ${#networks[@]} networks by label" docker network rm "${networks[@]}"; fi
}

# The volume that sandboxes mount from an agent's image, and the container that filled it. Refused while a sandbox mounts it.
remove_agent_runtime() {
    local name=paddock-agent-${1#sha256:}
    name=${name:0:26}
    if [ "$(docker volume inspect --format '{{index .Labels "paddock.agent"}}' "$name" 2>/dev/null)" != "$1" ]; then return 0; fi
    if [ "$(docker ps -aq --filter "volume=$name" | wc -l)" -gt 1 ]; then return 0; fi
    docker rm "$name" >/dev/null 2>&1 || true
    docker volume rm "$name" >/dev/null 2>&1 || true
}

# The images that hold installed packages of MCP servers, and end with our mark: those of another Paddock on this engine stay.
remove_packages() {
    local mark name
    if [ -n "${PADDOCK_KEEP_IMAGES:-}" ] || [ -z "$id" ]; then return 0; fi
    mark=$("$PADDOCK_VENV/bin/python" -I -c 'import sys; from controller.kinds.runtime.images import owner_mark; print(owner_mark(sys.argv[1]))' "$id") || return 0
    docker images --filter 'reference=paddock/mcp/*' --format '{{.Repository}}:{{.Tag}}' | while read -r name; do
        case $name in *"$mark") docker image rm "$name" >/dev/null 2>&1 || warn "$name is in use by a container that is not ours: left alone" ;; esac
    done
}

remove_images() {
    local built=$ROOT/.cache/images-built tag id
    if [ -n "${PADDOCK_KEEP_IMAGES:-}" ] || [ ! -r "$built" ] || ! engine_answers; then return 0; fi
    step "Removing the images that were built here"
    while read -r tag id; do
        remove_agent_runtime "$id"
        if [ "$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null)" = "$id" ]; then
            docker image rm "$tag" >/dev/null 2>&1 || warn "$tag is in use by a container that is not ours: left alone"
        elif [ "$(docker image inspect --format '{{len .RepoTags}}' "$id" 2>/dev/null)" = 0 ]; then # left without a name by a rebuild
            docker image rm "$id" >/dev/null 2>&1 || true
        fi
    done <"$built"
    rm -f "$built"
    rmdir "$(dirname "$built")" 2>/dev/null || true
}

remove_state() {
    if [ -e "$state_mark" ]; then
        step "Removing the state in $PADDOCK_STATE_DIR"
        remove_folders "$PADDOCK_STATE_DIR"
        rm -f "$PADDOCK_SOCKET"
        rmdir "$(dirname "$PADDOCK_SOCKET")" 2>/dev/null || true
    elif [ -e "$PADDOCK_STATE_DIR" ]; then
        warn "$PADDOCK_STATE_DIR was not created by make up: left alone"
    fi
}

remove_files() {
    if [ -e "$PADDOCK_VENV/.paddock-made" ]; then
        step "Removing $PADDOCK_VENV"
        rm -rf "$PADDOCK_VENV"
    elif [ -e "$PADDOCK_VENV" ]; then
        warn "$PADDOCK_VENV was not created by deploy/venv.sh: left alone"
    fi
    cd "$ROOT"
    rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache/prometheus .cache/mcp
    find controller migrations tests deploy -depth -type d -name __pycache__ -exec rm -rf {} + 2>/dev/null || true
}

remove_sandboxes
"$ROOT/deploy/levels.sh" unload # after the sandboxes: until then it confines them
remove_packages
remove_images
remove_state
remove_files
"$ROOT/deploy/engine.sh" stop || true # it says itself what keeps it
engine_left=$(find "$PADDOCK_ENGINE_STATE_DIR" -name dockerd.pid -o -name started-by-systemd 2>/dev/null || true)
if [ -r "$PADDOCK_ENGINE_STATE_DIR/installed-packages" ] && [ -z "$engine_left" ]; then
    say "Debian packages that were installed for the engine stay: $(paste -sd' ' "$PADDOCK_ENGINE_STATE_DIR/installed-packages")."
    say "Remove them, if nothing else uses them, with: apt-get remove $(paste -sd' ' "$PADDOCK_ENGINE_STATE_DIR/installed-packages")"
    rm -f "$PADDOCK_ENGINE_STATE_DIR/installed-packages"
    rmdir "$PADDOCK_ENGINE_STATE_DIR" 2>/dev/null || true
fi
