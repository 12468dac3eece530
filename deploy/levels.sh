#!/usr/bin/env bash
# What the security levels with a network need, as parts of `make up`. A part that can't be done is said, and fails nothing.
#   deploy/levels.sh guard     loads the guard of networks (paddock-guard.nft) where it is not loaded; installs nftables where it may
#   deploy/levels.sh proxy     builds the image of the proxies (paddock/egress:1) where it is out of date
#   deploy/levels.sh show      says which levels work here, and what the others lack
#   deploy/levels.sh unload    takes away the guard that `guard` loaded
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

rules=$ROOT/deploy/paddock-guard.nft
mark=$ROOT/.cache/guard-loaded # only what was loaded from here is taken away by make clean
image=paddock/egress:1

loaded() { have nft && nft list table inet paddock >/dev/null 2>&1; }

# lacks_guard: prints why the guard is not loaded; fails if it is.
lacks_guard() {
    case $DOCKER_HOST in unix://*) ;; *)
        printf 'the engine is on another host: load the guard there (nft -f deploy/paddock-guard.nft)'
        return
        ;;
    esac
    if ! have nft; then
        printf 'nft is not installed: install nftables, then run this again'
    elif ! is_root; then
        printf 'the guard of networks needs root: run make up as root'
    elif ! loaded; then
        printf 'the guard of networks is not loaded: nft -f deploy/paddock-guard.nft says why'
    else
        return 1
    fi
}

guard() {
    local said
    case $DOCKER_HOST in unix://*) ;; *) return 0 ;; esac
    is_root || return 0
    # in a shell of its own: what can't be installed ends nothing here
    if ! have nft && on_debian; then (apt_install nftables) || true; fi
    if ! have nft || loaded; then return 0; fi
    step "Loading the guard of networks: nft -f ${rules#"$PWD/"}"
    if said=$(nft -c -f "$rules" 2>&1 && nft -f "$rules" 2>&1); then
        mkdir -p "$(dirname "$mark")" && : >"$mark"
        say "    loaded (at boot: deploy/paddock-guard.service)"
    else
        warn "the guard could not be loaded: $(head -n 1 <<<"$said")"
    fi
}

proxy() { "$ROOT/images/build.sh" egress || warn "$image could not be built; \`images/build.sh egress\` does it later."; }

show() {
    local missing
    if missing=$(lacks_guard); then
        say "Security levels that work here: full-isolation."
        say "    development, build, production: $missing."
    elif ! docker image inspect "$image" >/dev/null 2>&1; then
        say "Security levels that work here: full-isolation, production."
        say "    development, build: the image of their proxy is missing: images/build.sh egress."
    else
        say "Security levels that work here: full-isolation, development, build, production."
    fi
}

unload() {
    [ -e "$mark" ] || return 0
    step "Taking away the guard of networks"
    nft delete table inet paddock 2>/dev/null || true
    rm -f "$mark"
}

case ${1:-} in
    guard | proxy | show | unload) "$1" ;;
    *) die "no command given; use: deploy/levels.sh guard | proxy | show | unload" ;;
esac
