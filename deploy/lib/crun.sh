# shellcheck shell=bash
# crun, the runtime that starts a sandbox in about half of runc's time. Sourced after common.sh by deploy/engine.sh and
# deploy/install.sh. PADDOCK_CRUN=no leaves it out; without it all works as well, by runc.

engine_settings=/etc/docker/daemon.json

# debian_has_crun: is it among this system's packages?
debian_has_crun() { on_debian && [ "${PADDOCK_CRUN:-}" != no ] && apt-cache show crun 2>/dev/null | grep -q '^Package: crun$'; }

# crun_options: the option of a dockerd that is started by hand, unless its settings name runtimes themselves.
crun_options() {
    [ "${PADDOCK_CRUN:-}" != no ] && have crun || return 0
    if [[ " ${PADDOCK_DOCKERD_ARGS:-} " == *runtime* ]] || grep -qs '"runtimes"' "$engine_settings"; then return 0; fi
    printf -- '--add-runtime\ncrun=%s\n' "$(command -v crun)"
}

# register_crun: writes it into the engine's settings and has the engine read them again; what runs is not touched.
register_crun() {
    local added
    [ "${PADDOCK_CRUN:-}" != no ] && have crun && have python3 || return 0
    if docker info --format '{{range $name, $_ := .Runtimes}}{{$name}} {{end}}' 2>/dev/null | grep -qw crun; then return 0; fi
    added=$(python3 "$ROOT/deploy/lib/runtime.py" "$engine_settings" crun "$(command -v crun)") || {
        warn "crun is installed and not registered: sandboxes are started by runc."
        return 0
    }
    [ "$added" = added ] || return 0
    say "    crun is registered with the engine ($engine_settings); sandboxes use it where it works (paddock get host -o yaml)"
    systemctl reload docker || warn "the engine could not read its settings again; crun is used after its next restart."
}
