"""Linux system calls that Python 3.11 has no function for."""

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2 = 437  # the same number on every architecture: it is younger than the common table
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_RENAME_NOREPLACE = 1
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36

RESOLVE_BENEATH = 0x08
RESOLVE_NO_MAGICLINKS = 0x02

IN_CHANGED = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Every inotify event after which a file or folder may read differently."""
_IN_ONLYDIR = 0x01000000


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def openat2(folder: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open PATH below the folder; neither `..`, symbolic links nor magic links lead out of it."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
    for _ in range(8):  # EAGAIN: somebody renamed a folder on the way
        try:
            return _checked(
                _libc.syscall(
                    ctypes.c_long(_OPENAT2),
                    ctypes.c_int(folder),
                    ctypes.c_char_p(path),
                    ctypes.byref(how),
                    ctypes.c_size_t(ctypes.sizeof(how)),
                )
            )
        except BlockingIOError:
            continue
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def rename_new(old_folder: int, old: bytes, new_folder: int, new: bytes) -> None:
    """Rename, and fail with EEXIST where the new name is taken."""
    _checked(
        _libc.syscall(
            ctypes.c_long(_RENAMEAT2[os.uname().machine]),
            ctypes.c_int(old_folder),
            ctypes.c_char_p(old),
            ctypes.c_int(new_folder),
            ctypes.c_char_p(new),
            ctypes.c_uint(_RENAME_NOREPLACE),
        )
    )


def refuse_tracing() -> None:
    """Keep processes of the same uid away from this one's descriptors and memory. An execve ends it."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def become_subreaper() -> None:
    """Adopt orphaned descendants, whatever session or group they moved to."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def close_from(low: int) -> bool:
    """Close every descriptor from LOW on. False if that can't be done at once: not every seccomp profile has it."""
    close_range = getattr(_libc, "close_range", None)
    return close_range is not None and close_range(low, -1, 0) == 0


def inotify_open() -> int:
    return _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))


def inotify_watch(inotify: int, folder: int) -> int:
    """Watch an open folder, through /proc so that its confined path is not resolved again."""
    return _checked(_libc.inotify_add_watch(inotify, b"/proc/self/fd/%d" % folder, IN_CHANGED | _IN_ONLYDIR))


def release_memory() -> None:
    """Give freed heap pages back to the kernel after a large message."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
