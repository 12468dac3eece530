"""A thread in the engine's own mount namespace: what it mounts there is what the engine, and its boxes, can see.

The daemon may live in another one (a hardened unit has its own). One thread does all mounting, one call at a time.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controller.engine.docker.raw_http import unix_path
from controller.engine.kernel.mount_calls import enter

T = TypeVar("T")
_PATIENCE_SECONDS = 5.0


class NoWay(Exception):
    """The engine's mounts can't be reached from here; says why and what to do."""


class EngineNamespace:
    """Of the engine at `base_url`. Making one does no work."""

    def __init__(self, base_url: str) -> None:
        self._socket = unix_path(base_url)
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._of = (0, 0)

    def run(self, do: Callable[[], T]) -> T:
        """Call in there, and give what it gives or raises. Raises NoWay."""
        with self._lock:
            return self._entered().submit(do).result()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _entered(self) -> ThreadPoolExecutor:
        """The thread; another one when the engine lives somewhere else than it did."""
        pid = self._engines_pid()
        try:
            found = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NoWay(f"the engine's mounts can't be seen ({error.strerror}): run the daemon as root") from error
        try:
            return self._thread_in(found)
        except OSError as error:
            raise NoWay(f"the engine's mount namespace can't be entered ({error.strerror})") from error
        finally:
            os.close(found)

    def _thread_in(self, namespace: int) -> ThreadPoolExecutor:
        theirs, ours = os.fstat(namespace), os.stat("/proc/self/ns/mnt")
        identity = (theirs.st_dev, theirs.st_ino)
        if self._thread is not None and self._of == identity:
            return self._thread
        self._drop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="engine-mounts")
        if identity != (ours.st_dev, ours.st_ino):
            try:
                thread.submit(enter, namespace).result()
            except OSError:
                thread.shutdown()
                raise
        self._thread, self._of = thread, identity
        return thread

    def _engines_pid(self) -> int:
        """Who listens at the engine's socket: the engine, or the init that holds it for the engine."""
        if not self._socket:
            raise NoWay("the engine is not on this host: nothing of this host can be bound into its boxes")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
                asking.settimeout(_PATIENCE_SECONDS)
                asking.connect(self._socket)
                told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError as error:
            raise NoWay(f"the engine does not answer at {self._socket}: {error.strerror or error}") from error
        pid = int(struct.unpack("3i", told)[0])
        if not pid:
            raise NoWay("the engine runs where this daemon can't see its processes: run the daemon on the host itself")
        return pid

    def _drop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
