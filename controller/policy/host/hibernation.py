"""Ability to hibernate: every active swap is judged, since pages of a full one go to the next."""

from dataclasses import replace

from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.swap import HibernationAbility, HostSwap

_LEAST_FREE_BYTES = 16 << 20
SETUP = "`deploy/zram.sh` sets up compressed swap in memory"
_PLACES = {
    "Memory": ("CompressedMemory", "compressed swap in memory"),
    "Encrypted": ("EncryptedSwap", "encrypted swap"),
    "Plain": ("PlainSwap", "swap on a plain disk (hibernate_to_plain_disk)"),
}


def judge(swap: HostSwap, most_bytes: int | None, *, to_plain_disk: bool, used_bytes: int = 0) -> HibernationAbility:
    """Return the ability of a host with that swap.

    `most_bytes` is the setting hibernation_bytes (0: off; None: all of the swap), `used_bytes` what hibernated
    sandboxes have in swap already. Memory may hold secrets: swap that keeps it on a plain disk is refused, unless
    `to_plain_disk`.
    """
    ability = _judged(swap, most_bytes, to_plain_disk=to_plain_disk, used_bytes=used_bytes)
    size = sum(device.size_bytes for device in swap.devices)
    return replace(ability, swap_bytes=size, swap_free_bytes=sum(device.free_bytes for device in swap.devices))


def _judged(swap: HostSwap, most_bytes: int | None, *, to_plain_disk: bool, used_bytes: int) -> HibernationAbility:
    if most_bytes == 0:
        return HibernationAbility(False, "Disabled", "the setting hibernation_bytes is 0")
    if swap.trouble:
        return HibernationAbility(False, "NotPossible", swap.trouble)
    if not swap.devices:
        return HibernationAbility(False, "NoSwap", f"the host has no active swap; {SETUP}")
    plain = [device.path for device in swap.devices if device.kind == "Plain"]
    if plain and not to_plain_disk:
        message = (
            f"{', '.join(plain)} is swap on a disk that is not encrypted, and memory may hold secrets; turn it off and "
            f"use zram ({SETUP}), or allow it by the setting hibernate_to_plain_disk"
        )
        return HibernationAbility(False, "PlainDisk", message)
    free = sum(device.free_bytes for device in swap.devices)
    if most_bytes is not None:
        free = min(free, max(0, most_bytes - used_bytes))
    reason, place = next(_PLACES[kind] for kind in ("Plain", "Encrypted", "Memory") if kind in _kinds(swap))
    if free < _LEAST_FREE_BYTES:
        message = f"{place} has no room left for another sandbox; enlarge it, or raise the setting hibernation_bytes"
        return HibernationAbility(False, "SwapFull", message, free)
    return HibernationAbility(True, reason, f"{format_bytes(free & ~0xFFFFF)} free in {place}", free)


def _kinds(swap: HostSwap) -> set[str]:
    return {device.kind for device in swap.devices}
