"""Lifetime of the engine: its present run, identified by its process, and a check that it listens.

An engine that restarts without live-restore ends every container; their exit is not their own fault. The process is the
listener on the engine's socket, or the one of its pid file under socket activation. Over TCP it is unknown; only the
time without observation tells of a restart then.
"""

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from controller.engine.kernel.cgroups import PROC
from controller.engine.kernel.engine_socket import unix_path

PID_FILE = Path("/run/docker.pid")
_UCRED = struct.Struct("3i")
_CONNECT_SECONDS = 1.0
_LISTEN_SECONDS = 0.5
_START_TICKS_FIELD = 21
_ENGINE = "dockerd"


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run of the engine's process. `began_at` is Unix seconds, to about a second."""

    pid: int
    start_ticks: int
    began_at: float

    def is_same_run(self, other_run: "EngineRun") -> bool:
        """Tell whether it is the same process, even if the wall clock was set meanwhile."""
        return (self.pid, self.start_ticks) == (other_run.pid, other_run.start_ticks)


def engine_run_of(base_url: str, *, proc: Path = PROC, pid_file: Path = PID_FILE) -> EngineRun | None:
    """Return the present run of the engine at that address; None if it can't be known."""
    path = unix_path(base_url)
    if not path:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = _listener(path)
        if pid == 1:
            pid = int(pid_file.read_text())
        return _run_of_pid(proc, pid) if _name(proc, pid) == _ENGINE else None
    return None


def _listener(path: str) -> int:
    """Return the listener's pid."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_CONNECT_SECONDS)
        link.connect(path)
        pid, _, _ = _UCRED.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(pid)


def _name(proc: Path, pid: int) -> str:
    return (proc / str(pid) / "comm").read_text().strip()


def _run_of_pid(proc: Path, pid: int) -> EngineRun:
    # The name in the second field may contain blanks and brackets: count from its last bracket.
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_START_TICKS_FIELD - 2])
    booted = next(int(line.split()[1]) for line in (proc / "stat").read_text().splitlines() if line.startswith("btime"))
    return EngineRun(pid, ticks, booted + ticks / os.sysconf("SC_CLK_TCK"))


def listens(base_url: str) -> bool:
    """Tell whether the engine may listen: False if its Unix socket is missing or refuses connections."""
    path = unix_path(base_url)
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as link:
            link.settimeout(_LISTEN_SECONDS)
            if path:
                link.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:  # such as too many open files in this process
        return True
    return True
