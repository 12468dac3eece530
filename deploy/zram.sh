#!/usr/bin/env bash
# Compressed swap in memory (zram), to which idle sandboxes are hibernated. Again: changes nothing.
#   deploy/zram.sh [SIZE]     now, and at each boot where systemd runs; SIZE as 4G, by default half of the memory
#   deploy/zram.sh --remove   turns it off, and takes its unit away; what is hibernated comes back to memory first
# SIZE bounds what goes in, before compression: a limit of the memory behind it (mem_limit) would end in failed writes.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/installed.sh
. "$ROOT/deploy/lib/installed.sh"

unit=/etc/systemd/system/paddock-zram.service
label=paddock-zram

# ours: the device that has our label, if it is in use.
ours() { swapon --show=NAME,LABEL --noheadings --raw 2>/dev/null | awk -v label="$label" '$2 == label {print $1}'; }

# reset_device DEVICE: tried for some seconds, for udev looks at a device that has changed, and who has it open keeps it busy.
reset_device() {
    local tries=20
    until zramctl --reset "$1" 2>/dev/null; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || die "$1 can't be reset: something has it open." "fuser $1 names it. End it, then: zramctl --reset $1"
        sleep 0.2
    done
}

turn_on() {
    local device
    [ -z "$(ours)" ] || return 0
    have modprobe && modprobe zram 2>/dev/null || true
    device=$(zramctl --find --size "$1") ||
        die "no zram device could be made." "The kernel needs the module zram: modprobe zram"
    if ! { mkswap --label "$label" "$device" >/dev/null && swapon --priority 100 "$device"; }; then
        (reset_device "$device") || true
        die "$device can't be used as swap." "The output above says why."
    fi
}

turn_off() {
    local device
    device=$(ours)
    [ -n "$device" ] || return 0
    swapoff "$device" ||
        die "$device can't be turned off: what it holds does not fit into memory." "Suspend or delete hibernated sandboxes, then run this again."
    reset_device "$device"
}

place_unit() {
    cat >"$unit" <<UNIT
# Written by deploy/zram.sh.
[Unit]
Description=Compressed swap for Paddock's hibernated sandboxes
Before=docker.service paddock.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'modprobe zram || :; d=\$\$(zramctl --find --size $1); mkswap --label $label "\$\$d"; swapon --priority 100 "\$\$d"'
ExecStop=/bin/sh -ec 'd=\$\$(swapon --show=NAME,LABEL --noheadings --raw | sed -n "s/ $label\$\$//p"); [ -z "\$\$d" ] || { swapoff "\$\$d"; udevadm settle || :; zramctl --reset "\$\$d"; }'

[Install]
WantedBy=multi-user.target
UNIT
}

is_root || die "swap needs root." "Run: sudo deploy/zram.sh"
have zramctl || die "zramctl is missing." "Install util-linux."
case ${1:-} in
    --remove)
        turn_off
        if [ -e "$unit" ]; then
            if systemd_runs; then systemctl disable --quiet --now paddock-zram || true; fi
            rm -f "$unit"
            if systemd_runs; then systemctl daemon-reload; fi
        fi
        say "Compressed swap of Paddock is off."
        ;;
    '' | [1-9]*)
        size=${1:-$(awk '/^MemTotal:/ {print int($2 / 2) "K"}' /proc/meminfo)}
        [[ $size =~ ^[1-9][0-9]*[KMGkmg]?$ ]] || die "$size is not a size." "Write it as 4G or 512M."
        if [ -n "$(ours)" ]; then
            say "Compressed swap of Paddock is on already: $(ours). To change its size: deploy/zram.sh --remove, then again."
        elif systemd_runs; then
            place_unit "$size"
            systemctl daemon-reload
            systemctl enable --quiet --now paddock-zram || die "the unit paddock-zram does not start." "systemctl status paddock-zram says why."
        else
            turn_on "$size"
        fi
        swapon --show=NAME,LABEL --noheadings --raw | awk -v label="$label" '$2 != label && $1 !~ /zram/ {print $1}' | while read -r other; do
            warn "$other is swap, too: unless it is encrypted nothing is hibernated while it is on (paddock doctor)"
        done
        ;;
    *) die "unknown argument: $1" "Use: deploy/zram.sh [SIZE | --remove]" ;;
esac
