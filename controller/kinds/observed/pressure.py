"""Free resources of the machine, and shortages of them: the kubelet's node pressure."""

from collections.abc import Iterator
from dataclasses import dataclass

RESOURCES = ("memory", "disk", "inodes", "pids")


@dataclass(frozen=True, slots=True)
class Supply:
    """Free amount of a resource, and its total. A `total` of 0 is unknown or unlimited."""

    free: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class HostUse:
    """Free resources of the machine at one time (`at`, Unix seconds): bytes, bytes, numbers, numbers.

    `memory_stall` is the share of the last ten seconds in which some process waited for memory (PSI), also at the limit
    of its own cgroup. `swap_in` are the bytes a second that were read from swap since the last reading; None: unknown.
    """

    at: float
    memory: Supply = Supply()
    disk: Supply = Supply()
    inodes: Supply = Supply()
    pids: Supply = Supply()
    memory_stall: float = 0.0
    swap_in: float | None = None

    def supplies(self) -> Iterator[tuple[str, Supply]]:
        """Return each supply by its name."""
        yield from ((name, getattr(self, name)) for name in RESOURCES)


@dataclass(frozen=True, slots=True)
class Pressure:
    """Shortages of the machine. `low` pauses new starts; `critical` (a subset) also stops idle sandboxes.

    `measured` are the readable ones. `calm` has (name, Unix seconds) since when a resource still called low has
    recovered. `stalls`: processes wait for the host's memory much of the time, as while much is read from swap.
    """

    low: tuple[str, ...] = ()
    critical: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    calm: tuple[tuple[str, float], ...] = ()
    stalls: bool = False

    def message(self) -> str:
        """Return the shortages as a message; "" if there are none."""
        return f"the host is low on {' and '.join(self.low)}" if self.low else ""


NONE = Pressure()
