"""Secrets: files of the operator on this host, one folder for each namespace, one file for each secret.

    /etc/paddock/secrets/<namespace>/<name>            owned by root, and readable for root only (0600 or less)
    /etc/paddock/secrets/<namespace>.models/<name>     keys of providers: no sandbox can name them
    /etc/paddock/secrets/<namespace>.models/<name>.hosts   the hosts that such a key may be sent to, one a line
    /etc/paddock/secrets/<namespace>.for.<host>/<name> credentials for that host, added by the egress proxy

A value is read on demand and never stored: a sandbox gets it as a file in memory, or in the environment of one command.
No message ever contains a part of a value.
"""

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from controller.engine.kernel import mount_calls
from controller.kinds.runtime.credential import credentials_folder, folder_parts, use_of
from controller.kinds.runtime.secret import NoSecret, SecretNotFound, SecretStamp, hosts_file, providers_folder

DEFAULT_FOLDER = Path("/etc/paddock/secrets")
MOST_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
_OF_PROVIDERS, _HOSTS = providers_folder(""), hosts_file("")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class SecretFolder:
    """ports.Secrets over a folder of the operator's."""

    def __init__(self, folder: Path = DEFAULT_FOLDER) -> None:
        self._folder = folder

    def read(self, namespace: str, name: str) -> bytes:
        """Return the value of a secret. Raises NoSecret."""
        path = self._folder / namespace / name
        if not namespace or not name or "/" in namespace + name or name.startswith(".") or namespace.startswith("."):
            raise NoSecret(f"secret `{name}` of namespace `{namespace}`: invalid name")
        try:
            outer = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._missing(path, error) from error
        try:
            return self._read(outer, namespace, name, path)
        except OSError as error:
            raise self._missing(path, error) from error
        finally:
            os.close(outer)

    def _missing(self, path: Path, error: OSError) -> NoSecret:
        """Return the error for a file that can't be opened."""
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            return _unreadable(path, error)
        name, (space, use) = path.name, use_of(path.parent.name)
        command = f"sudo paddock secret set {name} --for {use} -n {space}"
        other_uses = [
            other_use
            for other_space, other_use in map(use_of, self.namespaces())
            if (other_space, other_use) != (space, use) and other_space == space and self._has(space, other_use, name)
        ]
        remark = f"; the one of that name is for {', '.join(other_uses)}" if other_uses else ""
        return SecretNotFound(
            f"secret {name}: not found in namespace {space} for {use}{remark}; write `{command}` on the host"
        )

    def _has(self, space: str, use: str, name: str) -> bool:
        folders = {"sandboxes": space, "providers": providers_folder(space)}
        return name in dict(self.names(folders.get(use, credentials_folder(space, use))))

    def stamp(self, namespace: str, name: str) -> SecretStamp:
        """Return the present state of a secret's file. Never raises."""
        try:
            status = (self._folder / namespace / name).stat(follow_symlinks=False)
        except OSError:
            return SecretStamp(namespace, name, "")
        # Another owner or mode may make it one that is refused: the time of that change tells.
        return SecretStamp(namespace, name, f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_ctime_ns}")

    def _read(self, outer: int, namespace: str, name: str, path: Path) -> bytes:
        inner = mount_calls.open_beneath(outer, namespace, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder, opened in ((self._folder, outer), (path.parent, inner)):
                if not _trusted(os.fstat(opened), _OTHERS_WRITE):
                    raise NoSecret(f"{folder}: writable for others than root; chown root, and chmod go-w")
            # A FIFO must not block this; only regular files are read.
            file = mount_calls.open_beneath(inner, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        finally:
            os.close(inner)
        with os.fdopen(file, "rb") as opened_file:
            status = os.fstat(opened_file.fileno())
            _check(status, path)
            value = opened_file.read(MOST_BYTES + 1)
        if len(value) > MOST_BYTES:
            raise NoSecret(f"{path}: larger than {MOST_BYTES} bytes, the limit of a secret")
        return value

    def write(self, namespace: str, name: str, value: bytes) -> bool:
        """Write a secret, readable by this user alone; return True if it is new. Raises NoSecret; OSError."""
        path = self._path(namespace, name)
        if len(value) > MOST_BYTES:
            raise NoSecret(f"{path}: larger than {MOST_BYTES} bytes, the limit of a secret")
        return self._write(path, value)

    def bind(self, namespace: str, name: str, hosts: Sequence[str]) -> None:
        """Name the hosts that a provider's key may be sent to; none: it is sent to none. Raises NoSecret; OSError."""
        path = self._path(namespace, name)
        self._write(path.with_name(hosts_file(name)), "".join(f"{host}\n" for host in hosts).encode())

    def hosts(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """Return the hosts of a provider's key; None: it was set without any. Raises NoSecret; OSError."""
        try:
            return tuple(self._path(namespace, name).with_name(hosts_file(name)).read_text().split())
        except FileNotFoundError:
            return None

    def _write(self, path: Path, value: bytes) -> bool:
        for folder in (self._folder, path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _trusted(folder.stat(), _OTHERS_WRITE):
                raise NoSecret(f"{folder}: writable for others than root; chown root, and chmod go-w")
        is_new = not path.exists()
        fresh = path.with_name(f".{path.name}.new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        return is_new

    def names(self, namespace: str) -> list[tuple[str, float]]:
        """Return the names of a namespace's secrets, with the times of their last change (Unix seconds)."""
        try:
            files = list((self._folder / namespace).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = (file for file in files if not file.name.startswith(".") and file.suffix != _HOSTS)
        return sorted((file.name, file.stat().st_mtime) for file in names)

    def namespaces(self) -> list[str]:
        """Return the names of all folders of secrets."""
        try:
            return sorted(folder.name for folder in self._folder.iterdir() if folder.is_dir())
        except FileNotFoundError:
            return []

    def remove(self, namespace: str, name: str) -> None:
        """Delete a secret. Raises NoSecret; OSError."""
        path = self._path(namespace, name)
        try:
            path.unlink()
        except FileNotFoundError as error:
            raise SecretNotFound(f"there is no secret `{name}`: {path} is not there") from error
        path.with_name(hosts_file(name)).unlink(missing_ok=True)

    def _path(self, namespace: str, name: str) -> Path:
        space, host = folder_parts(namespace.removesuffix(_OF_PROVIDERS))
        if _NAME.fullmatch(name) is None or _NAME.fullmatch(space) is None or "/" in host:
            raise NoSecret(f"secret `{name}` of namespace `{namespace}`: names have lower-case letters, digits and `-`")
        return self._folder / namespace / name


def _check(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NoSecret(f"{path}: not a regular file")
    if not _trusted(status, _OTHERS):
        raise NoSecret(f"{path}: accessible for others than root; chown root, and chmod 600")
    if status.st_nlink != 1:
        raise NoSecret(f"{path}: has another hard link; write the file again")


def _trusted(status: os.stat_result, bits: int) -> bool:
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & bits


def _unreadable(path: Path, error: OSError) -> NoSecret:
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return NoSecret(f"{path}: contains a symlink; put the file itself there")
    return NoSecret(f"{path}: can't be read: {error.strerror}")
