"""Which ids of a folder are which in a box: its owner's files are the box's user's, and nobody else's are anybody's.

A user namespace says so to the kernel. It is made by a process of its own, which ends at once; the descriptor stays.
"""

import errno
import os
import subprocess
import sys
import threading
from dataclasses import dataclass

_NOBODY = 65534
_HOLD = "import ctypes,sys;r=ctypes.CDLL(None).unshare(0x10000000);print(r,flush=True);sys.stdin.read()"


@dataclass(frozen=True, slots=True)
class Ids:
    """A user and a group."""

    uid: int
    gid: int


def mapped(owner: Ids, user: Ids) -> tuple[tuple[int, int], tuple[int, int]]:
    """(on disk, in the box) for the one user and the one group that there are on both sides.

    Root's files are nobody's in a box, whoever its user is, and no box writes any: it has nobody's ids there instead.
    """
    return (owner.uid or user.uid or _NOBODY, user.uid), (owner.gid or user.gid or _NOBODY, user.gid)


class IdMaps:
    """User namespaces by what they map. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[tuple[int, int], tuple[int, int]], int] = {}

    def of(self, owner: Ids, user: Ids) -> int:
        """The descriptor of a user namespace that maps so; it stays ours. Raises OSError."""
        wanted = mapped(owner, user)
        with self._lock:
            if wanted not in self._made:
                self._made[wanted] = _make(*wanted)
            return self._made[wanted]

    def close(self) -> None:
        with self._lock:
            while self._made:
                os.close(self._made.popitem()[1])


def _make(uids: tuple[int, int], gids: tuple[int, int]) -> int:
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != b"0":
            raise OSError(errno.ENOSPC, "no user namespace can be made (see user.max_user_namespaces)")
        for name, (on_disk, in_box) in (("uid_map", uids), ("gid_map", gids)):
            with open(f"/proc/{holder.pid}/{name}", "w") as file:
                file.write(f"{on_disk} {in_box} 1")
        return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        holder.communicate()
