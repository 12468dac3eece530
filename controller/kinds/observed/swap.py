"""Swap of the host: its devices, and the ability to hibernate that follows from them."""

from dataclasses import dataclass
from typing import Literal

# Memory: compressed in memory (zram). Encrypted: on an encrypted disk. Plain: on a disk that keeps what is written.
SwapKind = Literal["Memory", "Encrypted", "Plain"]


@dataclass(frozen=True, slots=True)
class SwapDevice:
    """One active swap device or file, as the kernel lists it; `kind` is that of the least safe disk below it."""

    path: str
    kind: SwapKind
    size_bytes: int
    used_bytes: int

    @property
    def free_bytes(self) -> int:
        return max(0, self.size_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class HostSwap:
    """All active swap of the host. `trouble` says why it can't be read, or why no memory can be moved to it."""

    devices: tuple[SwapDevice, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class HibernationAbility:
    """Ability of the host to hibernate sandboxes. `free_bytes` is what they may still move to swap.

    `reason` is one word for programs, `message` says why it can't, or where the memory goes. `swap_bytes` is the size
    of all active swap, `swap_free_bytes` what nobody uses of it (0: none, or not read).
    """

    available: bool
    reason: str
    message: str = ""
    free_bytes: int = 0
    swap_bytes: int = 0
    swap_free_bytes: int = 0


UNKNOWN_ABILITY = HibernationAbility(False, "NotRead", "the host's swap was not read")
