# shellcheck shell=bash
# crun, the runtime that starts a sandbox in about half of runc's time. Sourced after common.sh by deploy/engine.sh and
# deploy/install.sh. PADDOCK_CRUN=no leaves it out; without it all works as well, by runc.

engine_settings=${PADDOCK_ENGINE_SETTINGS:-/etc/docker/daemon.json}

# debian_has_crun: is it among this system's packages?
debian_has_crun() { on_debian && [ "${PADDOCK_CRUN:-}" != no ] && apt-cache show crun 2>/dev/null | grep -q '^Package: crun$'; }

# crun_options: the option of a dockerd that is started by hand, unless its settings name runtimes themselves.
crun_options() {
    [ "${PADDOCK_CRUN:-}" != no ] && have crun || return 0
    if [[ " ${PADDOCK_DOCKERD_ARGS:-} " == *runtime* ]] || grep -qs '"runtimes"' "$engine_settings"; then return 0; fi
    printf -- '--add-runtime\ncrun=%s\n' "$(command -v crun)"
}

engine_has_crun() { [[ " $(docker info --format '{{range $name, $_ := .Runtimes}}{{$name}} {{end}}' 2>/dev/null) " == *" crun "* ]]; }

# runtimes_are_options: does the engine's command line name runtimes, as it runs or as its unit will start it? An engine
# that reads `runtimes` in its settings again has those alone: it forgets the ones of its command line (seen: 20.10).
runtimes_are_options() {
    local pid words
    pid=$(systemctl show --property MainPID --value docker 2>/dev/null) || pid=
    words=$({ tr '\0' ' ' <"/proc/${pid:-0}/cmdline"; systemctl show --property ExecStart docker; } 2>/dev/null) || true
    [[ $words == *add-runtime* ]]
}

# register_crun: writes it into the engine's settings and has the engine read them again; what runs is not touched. The
# settings are put back if the engine then does not have it.
register_crun() {
    local added before=
    [ "${PADDOCK_CRUN:-}" != no ] && have crun && have python3 || return 0
    if engine_has_crun; then return 0; fi
    if runtimes_are_options; then
        warn "crun is not registered: dockerd's command line has --add-runtime, and would forget those runtimes for $engine_settings." \
            "To use it, add --add-runtime=crun=$(command -v crun) there. Sandboxes are started by runc."
        return 0
    fi
    if [ -e "$engine_settings" ]; then
        before=$(mktemp)
        cat "$engine_settings" >"$before"
    fi
    added=$(python3 "$ROOT/deploy/lib/runtime.py" "$engine_settings" crun "$(command -v crun)") ||
        warn "crun is installed and not registered: sandboxes are started by runc."
    if [ "$added" = added ]; then
        if systemctl reload docker && crun_appears; then
            say "    crun is registered with the engine ($engine_settings); sandboxes use it where it works (paddock get host -o yaml)"
        else
            if [ -n "$before" ]; then cat "$before" >"$engine_settings"; else rm -f "$engine_settings"; fi
            systemctl reload docker || true
            warn "the engine did not take crun from $engine_settings, which is as it was before; sandboxes are started by runc."
        fi
    fi
    [ -z "$before" ] || rm -f "$before"
}

# crun_appears: waits until the engine has read its settings again, for 5 s at most.
crun_appears() {
    local try
    for ((try = 0; try < 25; try++)); do
        if engine_has_crun; then return 0; fi
        sleep 0.2
    done
    return 1
}
