"""Paths in a sandbox, resolved in its own root and never outside, whatever its links (openat2(2)).

For worker.py, which runs as the sandbox's user: only the standard library is imported.
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
# The kernel's virtual file systems: their files have no size, may block, and reveal the host.
_KERNEL_FILE_SYSTEMS = {
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
    """The path is not of the requested type; the message says what it is. `kind` is for programs."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def clean(path: str, working_dir: str = "/") -> bytes:
    """Return an absolute path in the sandbox, as bytes. A relative path starts at `working_dir`. Raises NotAFile."""
    name = path.encode("utf-8", "surrogateescape")
    if b"\0" in name or not 0 < len(name) < 4096:
        raise NotAFile("BadPath", "a path has 1 to 4095 bytes and no NUL; write one as /workspace/file")
    base = b"" if name.startswith(b"/") else working_dir.encode("utf-8", "surrogateescape").strip(b"/")
    return b"/" + (base + b"/" + name).lstrip(b"/")


def open_path(root: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open a path; with O_CREAT, `mode` is that of a new file. Links and `..` stay within the root, magic links fail.

    Raises OSError.
    """
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode, _NO_MAGICLINKS | _IN_ROOT)
    for _ in range(_TRIES):
        fd = int(_libc.syscall(_OPENAT2, root, path, how, len(how)))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a concurrent rename; retry
            break
    raise OSError(number, os.strerror(number), path)


def open_folder(root: int, path: bytes) -> int:
    """Open a folder for reading. Raises OSError, NotAFile."""
    fd = open_path(root, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    why = kernel_file_system(fd)
    if why:
        os.close(fd)
        raise NotAFile("NotAFile", f"{why}; use exec for it")
    return fd


def open_file(root: int, path: bytes, *, follow: bool = True, reads: bool = True) -> int:
    """Open a regular file for reading; others are only checked (O_PATH), never opened. Raises OSError, NotAFile.

    Not `reads`: the path alone, which may be reopened by its descriptor.
    """
    path_handle = open_path(root, path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
    try:
        mode = os.fstat(path_handle).st_mode
        if stat.S_ISDIR(mode):
            raise NotAFile("IsAFolder", "it is a folder; list it, or read it as an archive")
        if not stat.S_ISREG(mode):
            raise NotAFile("NotAFile", "it is not a regular file but a FIFO, socket, device or link; use exec for it")
        why = kernel_file_system(path_handle)
        if why:
            raise NotAFile("NotAFile", f"{why}; use exec for it")
        # Reopen the checked file by its descriptor: its name may lead elsewhere by now.
        if not reads:
            return os.dup(path_handle)
        return os.open(f"/proc/self/fd/{path_handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(path_handle)


def kernel_file_system(fd: int) -> str:
    """Return the reason to refuse a virtual file system of the kernel; "" for others."""
    buffer = ctypes.create_string_buffer(_FSTATFS_BYTES)
    if _libc.fstatfs(fd, buffer) != 0:
        return ""
    kind = _KERNEL_FILE_SYSTEMS.get(struct.unpack_from("l", buffer)[0])
    return f"it is on a virtual file system of the kernel ({kind})" if kind else ""


def split(path: bytes) -> tuple[bytes, bytes]:
    """Split into folder and name; the name of `/` is empty. Raises NotAFile for `.` and `..`."""
    folder, _, name = path.rstrip(b"/").rpartition(b"/")
    if name in (b".", b".."):
        raise NotAFile("BadPath", "the path must end in a name, not in `.` or `..`")
    return folder or b"/", name
