"""CPU time of the engine that the tests ask: of dockerd and of its containerd, as the kernel tells it."""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_SOCKET = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def engine_cpu_seconds() -> float:
    """Used since they began, in steps of 10 ms."""
    return sum(_cpu_seconds(process) for process in _processes())


def _processes() -> Iterator[int]:
    dockerd = listener()
    yield dockerd
    containerds = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm") if _text(path) == "containerd\n"}
    own_numbers = [containerd for containerd in containerds if _stat(containerd)[1] == str(dockerd)]
    yield from own_numbers or containerds  # one that the system runs for every engine


def listener() -> int:
    """The process that listens on the engine's socket."""
    with socket.socket(socket.AF_UNIX) as requested:
        requested.connect(_SOCKET)
        size = struct.calcsize("3i")
        return int(struct.unpack("3i", requested.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])


def with_children_seconds(pid: int) -> float:
    """Of one process and of those that it started and that have ended."""
    return sum(map(int, _stat(pid)[11:15])) / _TICKS_A_SECOND


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name: state, parent, ... (proc_pid_stat(5), from the third on)."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # it has ended
        return ""
