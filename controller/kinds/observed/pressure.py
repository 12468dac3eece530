"""How much the machine itself has left, and whether that is too little: what the kubelet calls node pressure."""

from collections.abc import Iterator
from dataclasses import dataclass

RESOURCES = ("memory", "disk", "inodes", "pids")


@dataclass(frozen=True, slots=True)
class Supply:
    """What is left of something, and of how much. A `total` of 0 is not known, or without a bound."""

    left: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class HostUse:
    """What the machine had left at one time (`at`, Unix seconds): bytes, bytes, numbers, numbers."""

    at: float
    memory: Supply = Supply()
    disk: Supply = Supply()
    inodes: Supply = Supply()
    pids: Supply = Supply()

    def supplies(self) -> Iterator[tuple[str, Supply]]:
        """Each by its name."""
        yield from ((name, getattr(self, name)) for name in RESOURCES)


@dataclass(frozen=True, slots=True)
class Pressure:
    """Of what the machine is short: `low` pauses new starts, `critical` (a part of it) also stops what is idle.

    `known` is what could be read. `calm` says since when something that is still called low has been seen to have
    recovered (pairs of name and Unix seconds).
    """

    low: tuple[str, ...] = ()
    critical: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    calm: tuple[tuple[str, float], ...] = ()

    def words(self) -> str:
        """In words; empty when there is none."""
        return f"the host is low on {' and '.join(self.low)}" if self.low else ""


NONE = Pressure()
