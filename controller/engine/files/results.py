"""How a file operation ends: its result, or why not, in a word for programs and in words for people."""

import errno
from collections.abc import Callable
from typing import Any

from controller.archive.names import Unsafe
from controller.archive.tar import TarError
from controller.archive.unpack import TooMuch
from controller.engine.files.sandbox_root import NotAFile

Words = dict[str, Any]
_KINDS = {
    errno.ENOENT: ("NotFound", "there is nothing"),
    errno.EEXIST: ("Exists", "it is there already"),
    errno.ENOTDIR: ("NotAFolder", "a part of the path is no folder"),
    errno.EISDIR: ("IsAFolder", "it is a folder"),
    errno.ENOTEMPTY: ("NotEmpty", "the folder is not empty; ask for all that is in it (recursive)"),
    errno.EACCES: ("Denied", "the box's user may not"),
    errno.EPERM: ("Denied", "the box's user may not"),
    errno.EROFS: ("ReadOnly", "that file system is read-only in the box; write below a tmpfs, such as /workspace"),
    errno.ENOSPC: ("NoSpace", "no space is left there in the box"),
    errno.EDQUOT: ("NoSpace", "no space is left there in the box"),
    errno.ELOOP: ("BadPath", "there are too many symlinks on the way, or one that is not followed"),
    errno.ENAMETOOLONG: ("BadPath", "the name is too long"),
    errno.EBUSY: ("Busy", "it is in use (a mount point?)"),
    errno.EWOULDBLOCK: ("Busy", "it is in use"),
    errno.ETXTBSY: ("Busy", "it is in use"),
    errno.EMFILE: ("BadPath", "it is nested too deep"),
}


class CutOff(Exception):
    """It ended before it was done: its input broke off, it took too long, or nobody wants it any more."""


class TooLarge(Exception):
    """More than a transfer may have."""


def outcome(work: Callable[[], Words]) -> Words:
    """`done` with what the work gives, or `error` (the kind, see kinds/runtime/files.py) with a `message`."""
    try:
        return {"done": work()}
    except NotAFile as error:
        return _failed(error.kind, str(error))
    except (TooLarge, TooMuch) as error:
        return _failed("TooLarge", str(error))
    except Unsafe as error:
        return _failed("Unsafe", str(error))
    except TarError as error:
        return _failed("BadArchive", str(error))
    except (CutOff, BrokenPipeError) as error:
        return _failed("CutOff", str(error))
    except MemoryError:
        return _failed("TooLarge", "it takes more memory than an operation may have")
    except OSError as error:
        return _failed(*in_words(error))


def _failed(kind: str, message: str) -> Words:
    return {"error": kind, "message": message}


def in_words(error: OSError) -> tuple[str, str]:
    """The word for programs and the words for people of what the kernel answered."""
    kind, words = _KINDS.get(error.errno or 0, ("Failed", (error.strerror or str(error)).lower()))
    # The name within an archive; that of the request is known to who asked.
    inner = error.filename if isinstance(error.filename, str) and not error.filename.startswith("/proc/") else ""
    return kind, f"{inner}: {words}" if inner else words
