"""Secrets: files that the operator puts into a folder of this host, one folder a namespace, one file a secret.

    /etc/paddock/secrets/<namespace>/<name>     root's, and nobody else may read it (0600 or less)

A value is read when it is needed and kept nowhere: it reaches a box as a file in memory, or the environment of one
command. No message here ever holds a part of one.
"""

import errno
import os
import stat
from pathlib import Path

from controller.engine.kernel import mount_calls
from controller.kinds.runtime.secret import NoSecret

DEFAULT_FOLDER = Path("/etc/paddock/secrets")
MOST_BYTES = 1 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class SecretFolder:
    """kinds.Secrets over a folder of the operator's."""

    def __init__(self, folder: Path = DEFAULT_FOLDER) -> None:
        self._folder = folder

    def read(self, namespace: str, name: str) -> bytes:
        """The secret of that name in that namespace. Raises NoSecret."""
        path = self._folder / namespace / name
        if not namespace or not name or "/" in namespace + name or name.startswith(".") or namespace.startswith("."):
            raise NoSecret(f"`{name}` of namespace `{namespace}` is no name of a secret")
        try:
            outer = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise NoSecret(_missing(path, error)) from error
        try:
            return self._read(outer, namespace, name, path)
        except OSError as error:
            raise NoSecret(_missing(path, error)) from error
        finally:
            os.close(outer)

    def _read(self, outer: int, namespace: str, name: str, path: Path) -> bytes:
        inner = mount_calls.open_beneath(outer, namespace, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder, opened in ((self._folder, outer), (path.parent, inner)):
                if not _trusted(os.fstat(opened), _OTHERS_WRITE):
                    raise NoSecret(f"others than root may write in {folder}: chown root, and chmod go-w")
            # A FIFO must not hold this up, and what is none is not read.
            file = mount_calls.open_beneath(inner, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        finally:
            os.close(inner)
        with os.fdopen(file, "rb") as opened_file:
            found = os.fstat(opened_file.fileno())
            _check(found, path)
            value = opened_file.read(MOST_BYTES + 1)
        if len(value) > MOST_BYTES:
            raise NoSecret(f"{path} is larger than {MOST_BYTES} bytes: no secret is")
        return value


def _check(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NoSecret(f"{path} is no regular file")
    if not _trusted(found, _OTHERS):
        raise NoSecret(f"{path} is not root's alone: chown root, and chmod 600")
    if found.st_nlink != 1:
        raise NoSecret(f"{path} has another name somewhere (a hard link): write it anew")


def _trusted(found: os.stat_result, bits: int) -> bool:
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & bits


def _missing(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"there is no secret {path}: put it there, root's, with mode 0600"
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return f"{path} is a link, or behind one: put the file itself there"
    return f"{path} can't be read: {error.strerror}"
