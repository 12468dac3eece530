"""Outcome of a file operation: its result, or an error with a kind for programs and a message for people."""

import errno
from collections.abc import Callable
from typing import Any

from controller.archive.names import Unsafe
from controller.archive.tar import TarError
from controller.archive.unpack import LimitExceeded
from controller.engine.files.sandbox_root import NotAFile

Result = dict[str, Any]
_KINDS = {
    errno.ENOENT: ("NotFound", "no such file or folder"),
    errno.EEXIST: ("Exists", "it already exists"),
    errno.ENOTDIR: ("NotAFolder", "a part of the path is not a folder"),
    errno.EISDIR: ("IsAFolder", "it is a folder"),
    errno.ENOTEMPTY: ("NotEmpty", "the folder is not empty; remove it recursively"),
    errno.EACCES: ("Denied", "permission denied to the sandbox's user"),
    errno.EPERM: ("Denied", "permission denied to the sandbox's user"),
    errno.EROFS: ("ReadOnly", "that file system is read-only in the sandbox; write to a tmpfs, such as /workspace"),
    errno.ENOSPC: ("NoSpace", "no space left on that file system in the sandbox"),
    errno.EDQUOT: ("NoSpace", "no space left on that file system in the sandbox"),
    errno.ELOOP: ("BadPath", "too many symlinks in the path, or one that is not followed"),
    errno.ENAMETOOLONG: ("BadPath", "the name is too long"),
    errno.EBUSY: ("Busy", "it is in use (a mount point?)"),
    errno.EWOULDBLOCK: ("Busy", "it is in use"),
    errno.ETXTBSY: ("Busy", "it is in use"),
    errno.EMFILE: ("BadPath", "it is nested too deeply"),
}


class CutOff(Exception):
    """The operation ended early: its input broke off, it timed out, or it was cancelled."""


class TooLarge(Exception):
    """More than the limit of a transfer."""


def outcome(work: Callable[[], Result]) -> Result:
    """Return `done` with the result, or `error` (the kind, see kinds/runtime/files.py) with a `message`."""
    try:
        return {"done": work()}
    except NotAFile as error:
        return _failed(error.kind, str(error))
    except (TooLarge, LimitExceeded) as error:
        return _failed("TooLarge", str(error))
    except Unsafe as error:
        return _failed("Unsafe", str(error))
    except TarError as error:
        return _failed("BadArchive", str(error))
    except (CutOff, BrokenPipeError) as error:
        return _failed("CutOff", str(error))
    except MemoryError:
        return _failed("TooLarge", "it needs more memory than an operation may use")
    except OSError as error:
        return _failed(*describe(error))


def _failed(kind: str, message: str) -> Result:
    return {"error": kind, "message": message}


def describe(error: OSError) -> tuple[str, str]:
    """Return the kind and the message of a system error."""
    kind, message = _KINDS.get(error.errno or 0, ("Failed", (error.strerror or str(error)).lower()))
    # The name within an archive; the client knows the path of its request.
    inner = error.filename if isinstance(error.filename, str) and not error.filename.startswith("/proc/") else ""
    return kind, f"{inner}: {message}" if inner else message
