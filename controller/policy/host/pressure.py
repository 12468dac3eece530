"""Resource pressure of the machine. As in the kubelet: a threshold, and a stable time before it counts as over.

https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from controller.kinds.observed.pressure import NONE, HostUse, Pressure, Supply

# A recovery counts after this time, so that a host near the threshold does not flap.
CALM_SECONDS = 60.0
_RECOVERED = 1.5  # times the threshold
_CALM, _LOW, _CRITICAL = range(3)
_MIB = 1 << 20
_STALL_SHARE = 0.1  # it ends at half of that
# Waits for memory are the host's from this rate of reads from swap on, or below so many times the threshold of memory.
_SWAP_IN_BYTES, _SCARCE = 256 << 10, 2.0


@dataclass(frozen=True, slots=True)
class PressureThreshold:
    """Threshold of a resource: low is below this share of the whole, at most `most`; critical is half of that.

    It has recovered at one and a half times the threshold. A lower mark would be crossed again at once.
    """

    share: float
    most: float = float("inf")

    def low(self, supply: Supply, scale: float) -> float:
        return min(self.share * supply.total, self.most) * scale


BANDS: Mapping[str, PressureThreshold] = MappingProxyType(
    {
        "memory": PressureThreshold(0.05, 512 * _MIB),
        "disk": PressureThreshold(0.10, 5120 * _MIB),
        "inodes": PressureThreshold(0.05, 100_000),
        "pids": PressureThreshold(0.10, 4096),
    }
)


def judge(before: Pressure, use: HostUse | None, scale: float = 1.0) -> Pressure:
    """Return the pressure after a reading; the same object if nothing changes. `scale` 0 turns it off.

    Unreadable resources keep their level, and are not `measured`.
    """
    if scale <= 0:
        return NONE
    supplies = {name: supply for name, supply in use.supplies() if supply.total > 0} if use is not None else {}
    levels = {
        name: _level(name, band.low(supplies[name], scale), supplies[name].free, before, use.at)
        if use is not None and name in supplies
        else _as_before(name, before)
        for name, band in BANDS.items()
    }
    pressure = Pressure(
        low=tuple(name for name, (level, _) in levels.items() if level),
        critical=tuple(name for name, (level, _) in levels.items() if level == _CRITICAL),
        measured=tuple(name for name in BANDS if name in supplies),
        calm=tuple((name, since) for name, (_, since) in levels.items() if since is not None),
        stalls=use is not None and _stalls(use, before, scale),
    )
    return before if pressure == before else pressure


def _stalls(use: HostUse, before: Pressure, scale: float) -> bool:
    """Return True if processes wait for the host's memory, and not only some at the limits of their own cgroups.

    A host of which that is unknown counts as short.
    """
    if use.memory_stall <= _STALL_SHARE / (2 if before.stalls else 1):
        return False
    is_scarce = not use.memory.total or use.memory.free < BANDS["memory"].low(use.memory, scale) * _SCARCE
    return is_scarce or use.swap_in is None or use.swap_in >= _SWAP_IN_BYTES / (2 if before.stalls else 1)


def _level(name: str, edge: float, free: int, before: Pressure, at: float) -> tuple[int, float | None]:
    """Return (level, since when it has recovered). A level ends at a higher mark than it begins."""
    if free < edge / 2 or (name in before.critical and free < edge):
        return _CRITICAL, None
    if free < edge or (name in before.low and free < edge * _RECOVERED):
        return _LOW, None
    since = dict(before.calm).get(name, at)
    still = name in before.low and since <= at < since + CALM_SECONDS
    return (_LOW, since) if still else (_CALM, None)


def _as_before(name: str, before: Pressure) -> tuple[int, float | None]:
    level = _CRITICAL if name in before.critical else _LOW if name in before.low else _CALM
    return level, dict(before.calm).get(name)
