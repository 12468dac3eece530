"""The kernel's descriptor-based mount calls: no path is resolved twice, so there are no races.

Their numbers are the same on every architecture (asm-generic). All raise OSError and need CAP_SYS_ADMIN.
"""

import contextlib
import ctypes
import errno
import os
import struct

_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 437, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _FROM_EMPTY_PATH, _TO_EMPTY_PATH = 1, 0x04, 0x40
_SET_FLAG, _SET_STRING, _CMD_CREATE = 0, 1, 6
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_MNT_DETACH, _NOFOLLOW = 2, 8
_IDMAP = 0x00100000
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC = 0x1, 0x2, 0x4, 0x8
SHARED, PRIVATE = 1 << 20, 1 << 18
_TRIES = 100
# statx(2) and statmount(2): sizes, masks and offsets.
_STATX_BYTES, _STATX_MNT_ID_UNIQUE, _STATX_MNT_ID_AT = 256, 0x4000, 144
_STATMOUNT, _STATMOUNT_BYTES, _STATMOUNT_STRINGS_AT = 457, 8192, 512
_STATMOUNT_SB_BASIC, _STATMOUNT_MNT_ROOT = 0x1, 0x8
_MANGLED = str.maketrans({" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"})

_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open a path below an open folder. Links are not followed, and `..` does not lead out."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
    for attempt in range(_TRIES):
        try:
            return _call(_OPENAT2, folder, os.fsencode(path), how, len(how))
        except OSError as error:  # EAGAIN: a concurrent rename; retry
            if error.errno != errno.EAGAIN or attempt == _TRIES - 1:
                raise
    raise AssertionError


def tree_of(fd: int) -> int:
    """Return a detached mount of the open file or folder, without the mounts below it."""
    return _call(_OPEN_TREE, fd, b"", ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH))


def tmpfs(flags: int, *, swappable: bool = False, **options: str) -> int:
    """Return a new detached tmpfs. `options` as of tmpfs(5): size, uid, gid, mode. Without swap if supported.

    `swappable`: it may go to swap with its sandbox's other memory, as far as that may.
    """
    context = _call(_FSOPEN, b"tmpfs", 1)
    try:
        if not swappable:
            with contextlib.suppress(OSError):  # Linux 6.4
                _call(_FSCONFIG, context, _SET_FLAG, b"noswap", None, 0)
        return _mounted(context, flags, options)
    finally:
        os.close(context)


def file_system(kind: str, device: str, flags: int) -> int:
    """Return a detached mount of the file system on a device."""
    context = _call(_FSOPEN, kind.encode(), 1)
    try:
        return _mounted(context, flags, {"source": device})
    finally:
        os.close(context)


def _mounted(context: int, flags: int, options: dict[str, str]) -> int:
    for name, value in options.items():
        _call(_FSCONFIG, context, _SET_STRING, name.encode(), value.encode(), 0)
    _call(_FSCONFIG, context, _CMD_CREATE, None, None, 0)
    return _call(_FSMOUNT, context, 1, flags)


def change(mount: int, flags: int = 0, *, propagation: int = 0, user_namespace: int = -1) -> None:
    """Add flags to a mount by its descriptor; map its ids by a user namespace while it is detached."""
    idmap = _IDMAP if user_namespace >= 0 else 0
    attributes = struct.pack("QQQQ", flags | idmap, 0, propagation, max(user_namespace, 0))
    _call(_MOUNT_SETATTR, mount, b"", _AT_EMPTY_PATH, attributes, len(attributes))


def attach(mount: int, target: int) -> None:
    """Attach a mount to the open `target`."""
    _call(_MOVE_MOUNT, mount, b"", target, b"", _FROM_EMPTY_PATH | _TO_EMPTY_PATH)


def detach(path: str) -> None:
    """Unmount the top mount at a path lazily: open files stay usable until they are closed."""
    if _libc.umount2(os.fsencode(path), _MNT_DETACH | _NOFOLLOW) != 0:
        _raise()


def origin_of(fd: int) -> str:
    """Return the origin of an open mount in mountinfo's form: `major:minor /folder`.

    Empty before Linux 6.8, which lacks statmount(2).
    """
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_MNT_ID_UNIQUE, buffer) != 0:
        return ""
    has, unique_id = struct.unpack_from("I", buffer, 0)[0], struct.unpack_from("Q", buffer, _STATX_MNT_ID_AT)[0]
    if not has & _STATX_MNT_ID_UNIQUE:
        return ""
    request = struct.pack("IIQQ", 24, 0, unique_id, _STATMOUNT_SB_BASIC | _STATMOUNT_MNT_ROOT)
    reported = ctypes.create_string_buffer(_STATMOUNT_BYTES)
    try:
        _call(_STATMOUNT, request, reported, ctypes.c_size_t(_STATMOUNT_BYTES), 0)
    except OSError:
        return ""
    major, minor = struct.unpack_from("II", reported, 16)
    at = _STATMOUNT_STRINGS_AT + struct.unpack_from("I", reported, 104)[0]
    root = os.fsdecode(reported.raw[at : reported.raw.index(b"\0", at)])
    return f"{major}:{minor} {root.translate(_MANGLED)}"


def enter(namespace: int) -> None:
    """Move the calling thread alone into a mount namespace."""
    if _libc.unshare(0x200) != 0 or _libc.setns(namespace, 0x20000) != 0:  # CLONE_FS, CLONE_NEWNS
        _raise()


def _call(number: int, *arguments: object) -> int:
    answer = int(_libc.syscall(number, *arguments))
    if answer < 0:
        _raise()
    return answer


def _raise() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
