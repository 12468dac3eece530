"""Claim on an engine: of the daemons with one instance id, those of one store alone act on it.

A copied state folder has the instance id of its original, and so its containers: each of the two daemons would undo the
work of the other. The claim is a locked file in a folder of this host that only root writes; the kernel frees it with
its process. The file names the store. Daemons of one store are kept apart by the store's lease, and a frozen one must
not keep out the next.
"""

import fcntl
import hashlib
import json
import os
from pathlib import Path

from controller.engine.kernel.engine_socket import unix_path

FOLDER = Path("/run/paddock/claims")


class InstanceClaim:
    """The claim of the store at `location` with that `instance_id` on the engine at `base_url`."""

    def __init__(self, instance_id: str, base_url: str, location: str, folder: Path = FOLDER) -> None:
        socket = unix_path(base_url)
        engine = os.path.realpath(socket) if socket else base_url
        self._path = folder / f"{instance_id}-{hashlib.sha256(engine.encode()).hexdigest()[:12]}"
        self._location, self._handle = location, -1

    def take(self) -> str:
        """Take the claim. Return "", or the process that has it for another store. Raises OSError."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(handle)
                os.close(handle)
                return "" if holder.get("store") == self._location else f"pid {holder.get('pid', 'unknown')}"
            if self._is_current(handle):
                break
            os.close(handle)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"store": self._location, "pid": os.getpid()}).encode(), 0)
        self._handle = handle
        return ""

    def close(self) -> None:
        """Give the claim up."""
        if self._handle >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1

    def _is_current(self, handle: int) -> bool:
        """Return True if the locked file was not removed since it was opened."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self._path))
        except FileNotFoundError:
            return False


def _holder(handle: int) -> dict[str, object]:
    try:
        record = json.loads(os.pread(handle, 4096, 0))
    except ValueError:  # it is about to write
        return {}
    return record if isinstance(record, dict) else {}
