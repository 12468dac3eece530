"""Gauges that must not grow: counted at rest, between two rounds of a soak."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tests.lab.engine import PrivateEngine

STORE, ENGINE = "the store", "the engine"
# To the engine: those that are kept for the next calls, and two streams of events. One that leaks with one deed in a
# hundred is beyond this after ten minutes.
MOST_CONNECTIONS = 66


@dataclass(frozen=True, slots=True)
class Gauges:
    """Of the daemon, unless named otherwise.

    `connections` are those to the engine, of which, as of the store's, more are kept the more were needed at once, up
    to a bound: they are no growth, and counted apart, at both ends.
    """

    fds: int
    threads: int
    memory_mib: int
    mounts: int
    containers: int
    networks: int
    volumes: int
    connections: int
    engine_fds: int
    engine_mounts: int


def read(pid: int, engine: PrivateEngine, folder: Path) -> Gauges:
    """All of them now. Mounts are those of the daemon's folder and of the engine's: others come and go on this host."""
    own_path, dockerd = Path(f"/proc/{pid}"), Path(f"/proc/{engine.pid}")
    files = opened(pid, engine, folder)
    return Gauges(
        fds=files.total() - files[STORE] - files[ENGINE],
        threads=_entries(own_path / "task"),
        memory_mib=_resident_kib(own_path) >> 10,
        mounts=_lines(own_path / "mountinfo", folder, engine.folder),
        containers=len(engine.docker("ps", "-aq").split()),
        networks=len(engine.docker("network", "ls", "-q").split()),
        volumes=len(engine.docker("volume", "ls", "-q").split()),
        connections=files[ENGINE],
        engine_fds=_entries(dockerd / "fd") - len(_to_engine(engine)),
        engine_mounts=_lines(dockerd / "mountinfo", folder, engine.folder),
    )


def grown(rounds: Sequence[Gauges]) -> dict[str, str]:
    """Return the gauges that grow, and by how much: the last third's least is over the first third's most.

    The first round warms up (pools of threads and connections, modules) and is not counted. Memory may be 3% more:
    Python gives back what it frees in large pieces only.
    """
    counted = rounds[1:]
    third = max(min(2, len(counted) // 2), len(counted) // 3)
    document = {}
    for field in (it for it in fields(Gauges) if it.name != "connections"):
        getattrs = [getattr(gauges, field.name) for gauges in counted]
        first, last = max(getattrs[:third]), min(getattrs[-third:])
        if last > first * (1.03 if field.name == "memory_mib" else 1.0):
            document[field.name] = f"{first} -> {last}"
    return document


def row(words: Sequence[object], gauges: Gauges) -> str:
    """One line of the table."""
    return f"| {' | '.join(str(entry) for entry in (*words, *astuple(gauges)))} |"


def head(words: Sequence[str]) -> str:
    """The table's first two lines."""
    names = [*words, *(field.name.replace("_", " ") for field in fields(Gauges))]
    return f"| {' | '.join(names)} |\n|{' --- |' * len(names)}"


def _entries(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def opened(pid: int, engine: PrivateEngine, folder: Path) -> Counter[str]:
    """The daemon's descriptors by what they are: a file's path, a kind of socket, a pipe."""
    to_engine, end, counts = _to_engine(engine), _ended(), Counter[str]()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target = os.readlink(path)
            if target.startswith(f"{folder}/paddock.db"):
                counts[STORE] += 1
            elif target in to_engine or target in end:
                counts[ENGINE] += 1
            else:
                counts[re.sub(r"\[\d+\]", "", target)] += 1
    return counts


def _to_engine(engine: PrivateEngine) -> set[str]:
    """The other ends of the engine's connections, as /proc names them."""
    return {f"socket:[{second}]" for place, _, _, second in _sockets() if place == f"{engine.folder}/engine.sock"}


def _ended() -> set[str]:
    """Connections that the engine has ended, and that nobody has taken from the pool since: no other end is left."""
    return {f"socket:[{own_text}]" for place, own_text, _, second in _sockets() if (place, second) == ("*", "0")}


def _sockets() -> list[list[str]]:
    """Of Unix sockets: path, inode, the other's path, its inode. Both ends are of the network that they came from."""
    lines = subprocess.run(["ss", "-xanH"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[-4:] for line in lines]


def _lines(file: Path, *about: Path) -> int:
    return sum(any(f"{path}/" in line for path in about) for line in file.read_text().splitlines())


def _resident_kib(process: Path) -> int:
    line = next(name for name in (process / "status").read_text().splitlines() if name.startswith("VmRSS:"))
    return int(line.split()[1])
