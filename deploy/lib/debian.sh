# shellcheck shell=bash
# Debian's packages as material for images: the host's own way to them (mirror, proxy, certificates), never one written down here.
# Sourced after common.sh.

# debian_targets: "URI RELEASE COMPONENT" of every Debian archive that this host's apt is set up for, from classic and deb822 files alike.
# apt knows where an archive comes from once its lists are here; third parties that call their suite "bookworm" too drop out by it.
debian_targets() {
    # shellcheck disable=SC2016 # apt's variables, not the shell's
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        sed -n 's/^Debian //p' | sort -u
}

# debian_sources RELEASE: deb822 sources for RELEASE on the host's mirrors; nothing where the host is not a Debian (then the tools' defaults hold).
debian_sources() {
    local release=$1 host_release targets archive security
    # shellcheck disable=SC1090
    host_release=$(. "$PADDOCK_OS_RELEASE" 2>/dev/null && [ "${ID:-}" = debian ] && printf '%s' "${VERSION_CODENAME:-}") || return 0
    targets=$(debian_targets)
    if [ -z "$targets" ] && is_root; then
        apt_update >&2
        targets=$(debian_targets)
    fi
    archive=$(awk -v suite="$host_release" '$2 == suite && $3 == "main" { print $1; exit }' <<<"$targets")
    security=$(awk -v suite="$host_release-security" '$2 == suite && $3 == "main" { print $1; exit }' <<<"$targets")
    [ -n "$archive" ] || return 0
    if [ "$release" = sid ]; then # it has no archive of updates beside it
        printf 'Types: deb\nURIs: %s\nSuites: sid\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' "$archive"
        return 0
    fi
    printf 'Types: deb\nURIs: %s\nSuites: %s %s-updates\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
        "$archive" "$release" "$release"
    [ -z "$security" ] ||
        printf '\nTypes: deb\nURIs: %s\nSuites: %s-security\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
            "$security" "$release"
}

# apt_access: the lines of the host's apt configuration that say how to reach a mirror.
apt_access() {
    have apt-config || return 0
    apt-config dump 2>/dev/null |
        grep -E '^Acquire::((http|https|ftp)::|Check-Valid-Until|Check-Date|Retries|ForceIPv)' |
        grep -vE '::(CaInfo|CaPath|SslCert|SslKey|User-Agent|Dl-Limit|Proxy-Auto-Detect|ProxyAutoDetect) |::Pipeline' |
        grep -v '^[^ ]* "";$' || true
    local variable # apt honours these, and a build sees none of them
    for variable in http_proxy https_proxy; do
        [ -z "${!variable:-}" ] || printf 'Acquire::%s::Proxy "%s";\n' "${variable%_proxy}" "${!variable}"
    done
}

# host_apt RELEASE FOLDER: a folder to copy into a build at /host-apt and to use with APT_CONFIG=/host-apt/apt.conf.
host_apt() {
    local release=$1 folder=$2
    mkdir -p "$folder/sources.list.d" "$folder/auth.conf.d"
    debian_sources "$release" >"$folder/sources.list.d/host.sources"
    {
        if [ -s "$folder/sources.list.d/host.sources" ]; then
            printf 'Dir::Etc::SourceList "/dev/null";\nDir::Etc::SourceParts "/host-apt/sources.list.d";\n'
        fi
        apt_access
        if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
            cp -L /etc/ssl/certs/ca-certificates.crt "$folder/ca.crt"
            printf 'Acquire::https::CaInfo "/host-apt/ca.crt";\n'
        fi
        if cat /etc/apt/auth.conf /etc/apt/auth.conf.d/*.conf >"$folder/auth.conf" 2>/dev/null || [ -s "$folder/auth.conf" ]; then
            printf 'Dir::Etc::Netrc "/host-apt/auth.conf";\n'
        fi
    } >"$folder/apt.conf"
    # apt fetches as a user of its own, who has to read these.
    chmod -R a+rX "$folder"
}

# debian_rootfs RELEASE TAR DPKG_OPTIONS: a minimal root file system from packages.
debian_rootfs() {
    local release=$1 tar=$2 dpkg_options=$3 sources options=() from=() line
    local missing=()
    have mmdebstrap || missing+=(mmdebstrap)
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
    if [ ${#missing[@]} -gt 0 ]; then
        may_install "${missing[*]}"
        apt_install "${missing[@]}"
    fi
    sources=$(dirname "$tar")/host.sources
    debian_sources "$release" >"$sources"
    while read -r line; do options+=(--aptopt="$line"); done < <(apt_access)
    if [ -s "$sources" ]; then from=("$sources"); fi # otherwise mmdebstrap's own default
    # The host's mirror and proxy are no business of the image: their files go again in the last step.
    # shellcheck disable=SC2016 # $1 is for the hooks' own shell
    local tidy='rm -rf "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap "$1"/etc/resolv.conf "$1"/etc/hostname "$1"/dev/*'
    # shellcheck disable=SC2016
    if [ -s "$sources" ]; then tidy+='; rm -f "$1"/etc/apt/sources.list.d/*; : >"$1"/etc/apt/sources.list'; fi
    # /usr is merged from the start: the package that would merge it later brings all of Perl along.
    progress "Debian $release from its packages" mmdebstrap --quiet --variant=minbase --mode=auto --dpkgopt="$dpkg_options" "${options[@]}" \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged --customize-hook="$tidy" "$release" "$tar" "${from[@]}" ||
        die "the base image could not be created from Debian's packages." \
            "mmdebstrap's last lines are above. With a registry in reach, PADDOCK_BASE=pull takes Debian's own image instead."
}

# static_busybox FILE: a statically linked busybox, from this machine if it has one, otherwise out of Debian's package without installing it.
static_busybox() {
    local file=$1 candidate
    for candidate in busybox /bin/busybox; do
        candidate=$(command -v "$candidate") || continue
        # A dynamically linked program names its loader among its first bytes: seen without any tool.
        if ! head -c 4096 "$candidate" | grep -qa '/ld-'; then
            cp -L "$candidate" "$file"
            return
        fi
    done
    may_install busybox-static
    local folder
    folder=$(mktemp -d)
    apt_update
    (cd "$folder" && progress "fetching busybox-static" apt-get -q download -o APT::Sandbox::User=root busybox-static && dpkg-deb -x ./*.deb .) ||
        die "Debian's busybox-static could not be fetched." "Install it (apt-get install busybox-static), then run this again."
    cp -L "$(find "$folder" -type f -path '*/bin/busybox')" "$file"
    rm -rf "$folder"
}
