"""Which life of the engine this is: it has no word for that, but its process has.

An engine that was restarted without live-restore has ended every container; that is no fault of theirs. Who listens
on the engine's socket tells its process. Where that is not the engine itself (systemd hands the socket over), its pid
file does; behind TCP nobody does, and only the blind time tells that it was away.
"""

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from controller.engine.docker.raw_http import unix_path
from controller.engine.kernel.cgroups import PROC

PID_FILE = Path("/run/docker.pid")
_UCRED = struct.Struct("3i")
_CONNECT_SECONDS = 1.0
_LISTEN_SECONDS = 0.5
_START_TICKS_FIELD = 21
_ENGINE = "dockerd"


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the engine: equal only to itself. `began_at` is Unix seconds, to about a second."""

    pid: int
    start_ticks: int
    began_at: float

    def same(self, other: "Life") -> bool:
        """Whether it is the same process; the wall clock may have been set meanwhile."""
        return (self.pid, self.start_ticks) == (other.pid, other.start_ticks)


def life_of(base_url: str, *, proc: Path = PROC, pid_file: Path = PID_FILE) -> Life | None:
    """The present life of the engine at that address; None where nothing tells."""
    path = unix_path(base_url)
    if not path:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = _listener(path)
        if pid == 1:
            pid = int(pid_file.read_text())
        return _life(proc, pid) if _name(proc, pid) == _ENGINE else None
    return None


def _listener(path: str) -> int:
    """The pid of who listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_CONNECT_SECONDS)
        link.connect(path)
        pid, _, _ = _UCRED.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(pid)


def _name(proc: Path, pid: int) -> str:
    return (proc / str(pid) / "comm").read_text().strip()


def _life(proc: Path, pid: int) -> Life:
    # The name in the second field may hold blanks and brackets: count from behind its last one.
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_START_TICKS_FIELD - 2])
    booted = next(int(line.split()[1]) for line in (proc / "stat").read_text().splitlines() if line.startswith("btime"))
    return Life(pid, ticks, booted + ticks / os.sysconf("SC_CLK_TCK"))


def listens(base_url: str) -> bool:
    """False where its Unix socket is not there, or nobody takes connections on it. Else True: nothing more is known."""
    path = unix_path(base_url)
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as link:
            link.settimeout(_LISTEN_SECONDS)
            if path:
                link.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:  # this process may have as many files open as it may
        return True
    return True
