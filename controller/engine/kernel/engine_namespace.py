"""A thread in the engine's mount namespace: its mounts are visible to the engine and its containers.

The daemon may run in another one (a hardened unit has its own). One thread does all mounting, one call at a time.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from controller.engine.kernel.engine_socket import unix_path
from controller.engine.kernel.mount_calls import enter

T = TypeVar("T")
_MAX_WAIT_SECONDS = 5.0


class NamespaceUnreachable(Exception):
    """The engine's mount namespace can't be entered; the message says why and what to do."""


class EngineNamespace:
    """Mount namespace of the engine at `base_url`. The constructor does no I/O."""

    def __init__(self, base_url: str) -> None:
        self._socket = unix_path(base_url)
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._of = (0, 0)

    def run(self, do: Callable[[], T]) -> T:
        """Call `do` inside; return its result or raise its error. Raises NamespaceUnreachable."""
        with self._lock:
            return self._entered().submit(do).result()

    def root(self) -> Path:
        """Return the root folder of the engine's mounts, as this process reaches it. Raises NamespaceUnreachable."""
        pid = self.engine_pid()
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/ns/mnt"), os.stat("/proc/self/ns/mnt")):
                return Path("/")
        except OSError as error:
            raise NamespaceUnreachable(f"the engine's mounts can't be read ({error.strerror})") from error
        return Path(f"/proc/{pid}/root")

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _entered(self) -> ThreadPoolExecutor:
        """Return the thread; a new one if the engine's namespace has changed."""
        pid = self.engine_pid()
        try:
            namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NamespaceUnreachable(
                f"the engine's mounts can't be read ({error.strerror}); run the daemon as root"
            ) from error
        try:
            return self._thread_in(namespace)
        except OSError as error:
            raise NamespaceUnreachable(f"the engine's mount namespace can't be entered ({error.strerror})") from error
        finally:
            os.close(namespace)

    def _thread_in(self, namespace: int) -> ThreadPoolExecutor:
        engine_namespace, ours = os.fstat(namespace), os.stat("/proc/self/ns/mnt")
        identity = (engine_namespace.st_dev, engine_namespace.st_ino)
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

    def engine_pid(self) -> int:
        """Return the pid of the listener on the engine's socket: the engine, or init under socket activation.

        Raises NamespaceUnreachable.
        """
        if not self._socket:
            raise NamespaceUnreachable(
                "the engine is on another host: nothing of this host can be mounted into its sandboxes"
            )
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
                asking.settimeout(_MAX_WAIT_SECONDS)
                asking.connect(self._socket)
                reported = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError as error:
            raise NamespaceUnreachable(
                f"the engine does not answer at {self._socket}: {error.strerror or error}"
            ) from error
        pid = int(struct.unpack("3i", reported)[0])
        if not pid:
            raise NamespaceUnreachable(
                "the engine's process is not visible from here; run the daemon on the host itself"
            )
        return pid

    def _drop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
