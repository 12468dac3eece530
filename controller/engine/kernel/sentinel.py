"""Sentinel: freezes what may be started on another host, once its daemon can't say any more that it may run here.

A process of its own, which outlives the daemon. The daemon renews a deadline in a file as long as it reaches the store;
after the deadline the sentinel pauses the listed containers through the engine, or, if that does not answer, freezes
their cgroups. It starts nothing again that the engine has paused: a daemon does, once it knows that they are its own.
"""

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller.engine.kernel.cgroups import Cgroups, Unreadable

FILE, _LOCK = "held.json", "sentinel.lock"
_LOOK_SECONDS = 0.25
_ENGINE_SECONDS = 2.0
_ALREADY = (204, 304, 404, 409)  # done, paused before, gone, not running


@dataclass(frozen=True, slots=True)
class Held:
    """The containers that may run until `deadline` (CLOCK_BOOTTIME), by the containers' ids: `freezer` of each."""

    deadline: float
    engine: str
    containers: Mapping[str, tuple[str, str, str]]


def freezer(cgroups: Cgroups, container: str, pid: int) -> tuple[str, str, str]:
    """Return the file that freezes a container, what freezes it and what thaws it; ("", "", "") if there is none."""
    with contextlib.suppress(OSError, Unreadable):
        folders = cgroups.folders(Path(f"/proc/{pid}/cgroup").read_text(), container)
        folder = folders.get("freezer")
        if folder is not None and folder.version == 1:
            return f"{folder.path}/freezer.state", "FROZEN", "THAWED"
        folder = folders.get("unified")
        if folder is not None:
            return f"{folder.path}/cgroup.freeze", "1", "0"
    return "", "", ""


class Sentinel:
    """The daemon's side: writes what is held to `folder`, and keeps the process that watches it."""

    def __init__(self, folder: Path, engine: str) -> None:
        """`engine` is the engine's socket as a URL. Nothing is started yet."""
        self._folder, self._engine, self._cgroups = folder, engine, Cgroups()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_empty = False
        self._freezers: dict[str, tuple[str, str, str]] = {}

    def resume(self) -> None:
        """Watch again over what an earlier daemon held, at once; nothing if it held nothing."""
        if (self._folder / FILE).exists():
            self.watch()

    def hold(self, deadline: float, containers: Iterable[tuple[str, int]]) -> None:
        """Let these containers (id and pid) run until `deadline`, and no longer. Raises OSError: the last counts."""
        pids = dict(containers)
        if not pids and (self._is_empty or not (self._folder / FILE).exists()):
            return
        known_freezers = self._freezers
        self._freezers = {
            container_id: known_freezers.get(container_id) or freezer(self._cgroups, container_id, pid)
            for container_id, pid in pids.items()
        }
        text = json.dumps({"deadline": deadline, "engine": self._engine, "containers": self._freezers})
        fresh = self._folder / f"{FILE}.new"
        fresh.write_text(text)
        fresh.replace(self._folder / FILE)
        self._is_empty = not pids
        if pids:
            self.watch()

    def watch(self) -> None:
        """Start the process, unless it runs. One of an earlier daemon is replaced: it may be of another version."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is None:
            _end_other(self._folder / _LOCK)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", __name__, str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={},
        )


class Lock:
    """The lock of the one sentinel of a folder, with its pid."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, str(os.getpid()).encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        os.close(self._handle)


def _end_other(lock: Path) -> None:
    """End the sentinel that holds the lock."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.kill(int(os.pread(handle, 32, 0)), signal.SIGKILL)
        finally:
            os.close(handle)


class Watch:
    """The sentinel's side: `look` reads the file, and freezes what is due."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._done: set[str] = set()
        self._by_cgroup: dict[str, tuple[str, str, str]] = {}

    def look(self, now: float) -> bool:
        """Freeze what is held after its deadline. Return False once nothing is left to freeze or to thaw."""
        order = self._read()
        if order is None:
            return False
        if now < order.deadline:
            self._thaw(order)
            self._done.clear()
        else:
            for container_id, files in order.containers.items():
                if container_id not in self._done and self._freeze(order.engine, container_id, files):
                    self._done.add(container_id)
        # What the engine has paused stays so until a daemon says otherwise, which starts another sentinel first.
        return bool(order.containers.keys() - self._done | self._by_cgroup.keys())

    def _read(self) -> Held | None:
        try:
            document: Any = json.loads(self._file.read_text())
            containers = {name: (str(a), str(b), str(c)) for name, (a, b, c) in document["containers"].items()}
            return Held(float(document["deadline"]), str(document["engine"]), containers)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _freeze(self, engine: str, container: str, files: tuple[str, str, str]) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if _pause(engine, container) in _ALREADY:
                return True
        with contextlib.suppress(OSError):
            if Path(files[0]).read_text().strip() != files[1]:
                Path(files[0]).write_text(files[1])
                self._by_cgroup[container] = files
                return True
        # It was frozen before. Paused or hibernated, it stays so; the end of a capture thaws it: look again.
        return False

    def _thaw(self, order: Held) -> None:
        """Thaw what the engine does not know of as frozen, if it is still its host's to run."""
        for container_id in [container_id for container_id in self._by_cgroup if container_id in order.containers]:
            file, _, thawed = self._by_cgroup.pop(container_id)
            with contextlib.suppress(OSError):
                Path(file).write_text(thawed)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=_ENGINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ENGINE_SECONDS)
        self.sock.connect(self._path)


def _pause(engine: str, container: str) -> int:
    """Ask the engine to pause a container; return the status of its answer."""
    connection = _Connection(engine.removeprefix("unix://"))
    try:
        connection.request("POST", f"/containers/{container}/pause")
        return connection.getresponse().status
    finally:
        connection.close()


def main(folder: Path) -> None:
    """Watch until nothing is held."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch = Watch(folder)
    with Lock(folder / _LOCK):
        while watch.look(time.clock_gettime(time.CLOCK_BOOTTIME)):
            time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
