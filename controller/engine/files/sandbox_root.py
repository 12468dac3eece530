"""Paths in a box, looked up in its own root and never outside of it, whatever links it holds (openat2(2)).

For files_worker.py, which runs as the box's user: nothing else than the standard library is imported here.
"""

import ctypes
import errno
import os
import stat
import struct

_OPENAT2 = 437  # on every architecture
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10
_TRIES = 100
_FSTATFS_BYTES = 256
# File systems whose files are the kernel's talk: they have no size, may block, and tell of the host.
_OF_THE_KERNEL = {
    0x9FA0: "proc",
    0x62656572: "sysfs",
    0x27E0EB: "cgroup",
    0x63677270: "cgroup2",
    0x1CD1: "devpts",
    0x19800202: "mqueue",
    0x64626720: "debugfs",
    0x74726163: "tracefs",
    0x73636673: "securityfs",
}
_libc = ctypes.CDLL(None, use_errno=True)


class NotAFile(Exception):
    """What is there is not what was asked for; says what it is. `kind` is the word for programs."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def clean(path: str) -> bytes:
    """An absolute path in the box, as bytes. A relative one is taken from `/`. Raises NotAFile."""
    name = path.encode("utf-8", "surrogateescape")
    if b"\0" in name or not 0 < len(name) < 4096:
        raise NotAFile("BadPath", "a path has 1 to 4095 bytes and no NUL; write one as /workspace/file")
    return b"/" + name.lstrip(b"/")


def open_path(root: int, path: bytes, flags: int) -> int:
    """Open without creating. Links lead within the root, `..` ends there, magic links are not followed. OSError."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _IN_ROOT)
    for _ in range(_TRIES):
        fd = int(_libc.syscall(_OPENAT2, root, path, how, len(how)))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: somebody renamed on the way; look again
            break
    raise OSError(number, os.strerror(number), path)


def open_folder(root: int, path: bytes) -> int:
    """A folder, to read it. Raises OSError, NotAFile."""
    fd = open_path(root, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    why = of_the_kernel(fd)
    if why:
        os.close(fd)
        raise NotAFile("NotAFile", f"{why}; use exec for it")
    return fd


def open_file(root: int, path: bytes, *, follow: bool = True) -> int:
    """A regular file, to read it. What is none is never opened at all, only looked at. Raises OSError, NotAFile."""
    seen = open_path(root, path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
    try:
        mode = os.fstat(seen).st_mode
        if stat.S_ISDIR(mode):
            raise NotAFile("IsAFolder", "it is a folder; list it, or read it as an archive")
        if not stat.S_ISREG(mode):
            raise NotAFile("NotAFile", "it is no regular file (a FIFO, a socket, a device or a link); use exec for it")
        why = of_the_kernel(seen)
        if why:
            raise NotAFile("NotAFile", f"{why}; use exec for it")
        # The very file that was looked at, by our own descriptor: its name may lead elsewhere by now.
        return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(seen)


def of_the_kernel(fd: int) -> str:
    """Why files there are none, or nothing."""
    buffer = ctypes.create_string_buffer(_FSTATFS_BYTES)
    if _libc.fstatfs(fd, buffer) != 0:
        return ""
    kind = _OF_THE_KERNEL.get(struct.unpack_from("l", buffer)[0])
    return f"it is the kernel's own ({kind}), and no file" if kind else ""


def split(path: bytes) -> tuple[bytes, bytes]:
    """The folder and the name in it; the name of `/` is empty. Raises NotAFile for a name that is none."""
    folder, _, name = path.rstrip(b"/").rpartition(b"/")
    if name in (b".", b".."):
        raise NotAFile("BadPath", "the path must end in a name, not in `.` or `..`")
    return folder or b"/", name
