"""Which ids of a folder are which in a box: its owner's files are the box's user's, and nobody else's are anybody's.

A user namespace says so to the kernel. It is made by a process of its own, which ends once it is told what to map; the
descriptor stays. One process waits ahead: starting it is what takes time, and a claim does not wait for that.
"""

import contextlib
import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
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
        self._spare: _Holder | None = None
        self._background: ThreadPoolExecutor | None = None

    def prepare(self) -> None:
        """Have a namespace ready for the next ids that nobody has asked for yet; made in the background."""
        with self._lock:
            self._background = self._background or ThreadPoolExecutor(1, thread_name_prefix="idmap")
            self._background.submit(self._make_spare)

    def of(self, owner: Ids, user: Ids) -> int:
        """The descriptor of a user namespace that maps so; it stays ours. Raises OSError."""
        wanted = mapped(owner, user)
        with self._lock:
            if wanted not in self._made:
                self._made[wanted] = self._make(*wanted)
            return self._made[wanted]

    def close(self) -> None:
        with self._lock:
            background, self._background = self._background, None
        if background is not None:
            background.shutdown()
        with self._lock:
            if self._spare is not None:
                self._spare.end()
                self._spare = None
            while self._made:
                os.close(self._made.popitem()[1])

    def _make_spare(self) -> None:
        with self._lock:
            if self._spare is not None:
                return
        made: _Holder | None = _Holder()
        with self._lock:
            made, self._spare = self._spare, made
        if made is not None:  # somebody else was as fast
            made.end()

    def _make(self, uids: tuple[int, int], gids: tuple[int, int]) -> int:
        spare, self._spare = self._spare, None
        if spare is not None:
            with contextlib.suppress(OSError):  # somebody killed it
                return spare.give(uids, gids)
        return _Holder().give(uids, gids)


class _Holder:
    """A process in a user namespace of its own, which maps nothing yet; it waits to be told to end. Raises OSError."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
        )

    def give(self, uids: tuple[int, int], gids: tuple[int, int]) -> int:
        """The namespace, with these maps. Ends the process. Raises OSError."""
        try:
            assert self._process.stdout is not None
            if self._process.stdout.readline().strip() != b"0":
                raise OSError(errno.ENOSPC, "no user namespace can be made (see user.max_user_namespaces)")
            for name, (on_disk, in_box) in (("uid_map", uids), ("gid_map", gids)):
                with open(f"/proc/{self._process.pid}/{name}", "w") as file:
                    file.write(f"{on_disk} {in_box} 1")
            return os.open(f"/proc/{self._process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            self.end()

    def end(self) -> None:
        self._process.kill()  # it has nothing to finish
        self._process.communicate()
