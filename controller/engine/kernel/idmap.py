"""Id maps of folders in a sandbox: the owner's files belong to the sandbox's user, all others to nobody.

The map is a user namespace. A helper process creates it and ends once the map is written; the descriptor stays. One
helper waits in reserve, as its start takes most of the time and a claim must not wait for it.
"""

import contextlib
import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_NOBODY = 65534
_MOST_MAPS = 128  # the callers of one moment are far fewer
_HOLD = "import ctypes,sys;r=ctypes.CDLL(None).unshare(0x10000000);print(r,flush=True);sys.stdin.read()"


Extents = tuple[tuple[int, int, int], ...]  # (on disk, inside, how many)


@dataclass(frozen=True, slots=True)
class Ids:
    """A user and a group."""

    uid: int
    gid: int


def mapped(owner: Ids, user: Ids) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (on disk, in the sandbox) for the one mapped user and the one mapped group.

    Files of root belong to nobody in a sandbox, and no sandbox ever writes as root: its ids map to nobody's instead.
    """
    return (owner.uid or user.uid or _NOBODY, user.uid), (owner.gid or user.gid or _NOBODY, user.gid)


def extents(on_disk: int, inside: int, *, others: bool) -> Extents:
    """Return the lines of a map: of one id, and with `others`, for root inside, of all ids to themselves."""
    if not others or inside:
        return ((on_disk, inside, 1),)
    return ((on_disk, 0, 1), (1, 1, on_disk - 1), (on_disk + 1, on_disk + 1, _NOBODY - on_disk - 1))


class IdMaps:
    """User namespaces, cached by their maps. Thread-safe.

    Each sandbox has ids of its own, so most maps serve one sandbox. A mount keeps its map without the descriptor.

    One thread starts the helpers. It begins with this object: a thread that moved into the engine's mount namespace,
    and the threads that it starts, may not find Python there.
    """

    def __init__(self, most: int = _MOST_MAPS) -> None:
        self._most = most
        self._handles: dict[tuple[Extents, Extents], int] = {}
        self._spare: _Holder | None = None
        self._helpers = ThreadPoolExecutor(1, thread_name_prefix="idmap")
        self._helpers.submit(int).result()

    def prepare(self) -> None:
        """Start a helper process in the background, for the next new map."""
        self._helpers.submit(self._make_spare)

    def of(self, owner: Ids, user: Ids, *, others: bool = False) -> int:
        """Return the descriptor of a user namespace with that map, open until many others were asked for.

        `others`: root's programs may give files to other users of the sandbox. Raises OSError.
        """
        uids, gids = mapped(owner, user)
        desired = extents(*uids, others=others), extents(*gids, others=others)
        return self._helpers.submit(self._of, desired).result()

    def close(self) -> None:
        """End the reserve, and forget the namespaces."""
        with contextlib.suppress(RuntimeError):  # closed before
            self._helpers.submit(self._forget)
        self._helpers.shutdown()

    # In the thread of the helpers

    def _make_spare(self) -> None:
        if self._spare is None:
            self._spare = _Holder()

    def _of(self, desired: tuple[Extents, Extents]) -> int:
        prepared = self._handles.pop(desired, None)
        self._handles[desired] = handle = self._give(*desired) if prepared is None else prepared
        if len(self._handles) > self._most:
            os.close(self._handles.pop(next(iter(self._handles))))
        if prepared is None:
            self._helpers.submit(self._make_spare)
        return handle

    def _give(self, uids: Extents, gids: Extents) -> int:
        spare, self._spare = self._spare, None
        if spare is not None:
            with contextlib.suppress(OSError):  # it was killed
                return spare.give(uids, gids)
        return _Holder().give(uids, gids)

    def _forget(self) -> None:
        if self._spare is not None:
            self._spare.end()
            self._spare = None
        while self._handles:
            os.close(self._handles.popitem()[1])


class _Holder:
    """Helper process in a new user namespace without a map. Raises OSError."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
        )

    def give(self, uids: Extents, gids: Extents) -> int:
        """Write the maps, return the namespace, and end the process. Raises OSError."""
        try:
            assert self._process.stdout is not None
            if self._process.stdout.readline().strip() != b"0":
                raise OSError(errno.ENOSPC, "no user namespace can be created; raise user.max_user_namespaces")
            for name, lines in (("uid_map", uids), ("gid_map", gids)):
                with open(f"/proc/{self._process.pid}/{name}", "w") as file:
                    file.write("".join(f"{on_disk} {inside} {count}\n" for on_disk, inside, count in lines))
            return os.open(f"/proc/{self._process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            self.end()

    def end(self) -> None:
        self._process.kill()  # it holds no data
        self._process.communicate()
