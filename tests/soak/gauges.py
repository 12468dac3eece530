"""What must not grow: counted at rest, between two rounds of a soak."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tests.lab.engine import PrivateEngine


@dataclass(frozen=True, slots=True)
class Gauges:
    """Of the daemon, unless named otherwise."""

    fds: int
    threads: int
    memory_mib: int
    mounts: int
    containers: int
    networks: int
    volumes: int
    engine_fds: int
    engine_mounts: int


def read(pid: int, engine: PrivateEngine) -> Gauges:
    """All of them now."""
    own, dockerd = Path(f"/proc/{pid}"), Path(f"/proc/{engine.pid}")
    return Gauges(
        fds=_entries(own / "fd"),
        threads=_entries(own / "task"),
        memory_mib=_resident_kib(own) >> 10,
        mounts=_lines(own / "mountinfo"),
        containers=len(engine.docker("ps", "-aq").split()),
        networks=len(engine.docker("network", "ls", "-q").split()),
        volumes=len(engine.docker("volume", "ls", "-q").split()),
        engine_fds=_entries(dockerd / "fd"),
        engine_mounts=_lines(dockerd / "mountinfo"),
    )


def grown(rounds: Sequence[Gauges]) -> dict[str, str]:
    """What grows, and how: the least of the last third is more than the most of the first third.

    The first round warms up (pools of threads and connections, modules) and is not counted. Memory may be 3% more:
    Python gives back what it frees in large pieces only.
    """
    counted = rounds[1:]
    third = max(1, len(counted) // 3)
    found = {}
    for each in fields(Gauges):
        told = [getattr(one, each.name) for one in counted]
        first, last = max(told[:third]), min(told[-third:])
        if last > first * (1.03 if each.name == "memory_mib" else 1.0):
            found[each.name] = f"{first} -> {last}"
    return found


def row(words: Sequence[object], gauges: Gauges) -> str:
    """One line of the table."""
    return f"| {' | '.join(str(each) for each in (*words, *astuple(gauges)))} |"


def head(words: Sequence[str]) -> str:
    """The table's first two lines."""
    names = [*words, *(each.name.replace("_", " ") for each in fields(Gauges))]
    return f"| {' | '.join(names)} |\n|{' --- |' * len(names)}"


def _entries(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def _resident_kib(process: Path) -> int:
    line = next(each for each in (process / "status").read_text().splitlines() if each.startswith("VmRSS:"))
    return int(line.split()[1])
