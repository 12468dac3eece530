"""Files in memory of suspended sandboxes, on this host's disk until their next start.

    <folder>/<uid>/<n>.tar, saved.json    one archive for each folder in memory; written aside and renamed when complete

An archive is removed once its files are in memory again. Nobody but root may read any of it.
"""

import errno
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from controller.archive.state.bounds import Bounds
from controller.engine.archiver.run import WorkFailed, restore_folder, save_folder
from controller.kinds.common.quantity import format_bytes
from controller.kinds.runtime.mount import SavedFiles

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 30  # of one sandbox, by default
MOST_FILES = 1_000_000
# A save of that many files takes about a minute. One that takes longer reads from a stuck kernel.
_LONGEST_SECONDS = 600.0
_RESERVE_BYTES = 64 << 20  # that stay free on the disk
_INDEX, _NEW, _OLD, _GONE = "saved.json", ".new", ".old", ".gone"
_MISSED, _MISSED_SECONDS = "missed", 86400.0  # a file that tells since when an archive's object is missing


_REMEDY = "set lifecycle.onSuspend to Discard to start without them"


class DoesNotFit(Exception):
    """The files in memory can't be saved; the message says why, and what to do."""


class DamagedArchive(Exception):
    """The saved files can't be read back; the message says why."""


class SavedFolders:
    """Archives of all sandboxes below a folder. Thread-safe for different sandboxes; the constructor does no I/O."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES, now: Callable[[], float] = time.time) -> None:
        """`most_bytes` of one sandbox are saved."""
        self._folder, self._most_bytes, self._now = folder, most_bytes, now
        self._lock = threading.Lock()

    def check(self, folders: Mapping[str, int]) -> None:
        """Check that these folders (open descriptors by path) can be saved. Raises DoesNotFit."""
        used_bytes = files = 0
        for descriptor in folders.values():
            usage = os.fstatvfs(descriptor)
            used_bytes += (usage.f_blocks - usage.f_bfree) * usage.f_frsize
            files += usage.f_files - usage.f_ffree
        if used_bytes > self._most_bytes:
            raise DoesNotFit(
                f"its files in memory are {format_bytes(used_bytes)}, more than the {format_bytes(self._most_bytes)}"
                " that the setting suspend_files_bytes allows; delete some, or set lifecycle.onSuspend to Discard"
            )
        if files > MOST_FILES:
            raise DoesNotFit(f"it has {files} files in memory, more than {MOST_FILES}; delete some, or set onSuspend")
        free_bytes = self._free_bytes()
        if used_bytes + _RESERVE_BYTES > free_bytes:
            raise DoesNotFit(
                f"its files in memory are {format_bytes(used_bytes)}, and the disk of the state folder has"
                f" {format_bytes(free_bytes)} left; free some of it"
            )

    def save(self, uid: str, folders: Mapping[str, int]) -> SavedFiles:
        """Save these folders (open descriptors by path), in place of what was saved of them before.

        A folder that was saved before, and is not in memory any more, stays saved. Raises DoesNotFit, DamagedArchive,
        OSError: then nothing was changed.
        """
        self.check(folders)
        earlier = self._index(uid)
        if earlier is None and all(map(_is_empty, folders.values())):
            return SavedFiles(0, at=self._now())
        new = self._folder / f"{uid}{_NEW}"
        shutil.rmtree(new, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.mkdir(mode=0o700)
        try:
            saved = self._write(new, folders, earlier, self._folder / uid)
        except (DoesNotFit, OSError):
            shutil.rmtree(new, ignore_errors=True)
            raise
        with self._lock:
            self._replace(uid, new)
        return saved

    def _write(self, new: Path, folders: Mapping[str, int], earlier: dict[str, Any] | None, place: Path) -> SavedFiles:
        """Write one archive a folder into `new`, durably. Raises DoesNotFit."""
        end = time.monotonic() + _LONGEST_SECONDS
        room = max(0, self._free_bytes() - _RESERVE_BYTES)
        size_bytes = files = omitted = 0
        for number, descriptor in enumerate(folders.values()):
            seconds = max(0.0, end - time.monotonic())
            bounds = Bounds(MOST_FILES, bytes=self._most_bytes, archive_bytes=room - size_bytes, seconds=seconds)
            with self._create(new / f"{number}.tar") as archive:
                try:
                    report = save_folder(descriptor, archive.fileno(), bounds)
                except WorkFailed as error:
                    raise DoesNotFit(f"its files in memory can't be saved: {error}") from error
                os.fsync(archive.fileno())
            size_bytes += report.archive_bytes
            files += report.entries
            omitted += report.omission_count
        paths = list(folders)
        for number, path in enumerate(earlier["folders"] if earlier else ()):
            if path not in folders:
                os.link(place / f"{number}.tar", new / f"{len(paths)}.tar")
                size_bytes += (new / f"{len(paths)}.tar").stat().st_size
                paths.append(path)
        saved = SavedFiles(size_bytes, files, omitted, self._now())
        index = {"saved": asdict(saved), "folders": paths}
        with self._create(new / _INDEX) as file:
            file.write(json.dumps(index).encode())
            file.flush()
            os.fsync(file.fileno())
        _sync(new)
        return saved

    def _replace(self, uid: str, new: Path) -> None:
        """Put a complete archive in the place of an earlier one: what it holds is in memory still."""
        place, old = self._folder / uid, self._folder / f"{uid}{_OLD}"
        shutil.rmtree(old, ignore_errors=True)
        with suppress(FileNotFoundError):
            place.rename(old)
        new.rename(place)
        _sync(self._folder)
        shutil.rmtree(old, ignore_errors=True)

    def find(self, uid: str) -> SavedFiles | None:
        """Return what is saved of an object; None for nothing. Raises DamagedArchive."""
        index = self._index(uid)
        return None if index is None else SavedFiles(**index["saved"])

    def open(self, uid: str, path: str) -> int | None:
        """Open the archive of a folder; None if it is not saved. Raises DamagedArchive, OSError."""
        index = self._index(uid)
        if index is None or path not in index["folders"]:
            return None
        archive = self._folder / uid / f"{index['folders'].index(path)}.tar"
        return os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def restore(self, uid: str, path: str, descriptor: int) -> None:
        """Put the saved files of a folder back into it; a folder that was not saved stays as it is.

        Raises DamagedArchive, OSError.
        """
        index = self._index(uid)
        if index is None or path not in index["folders"]:
            return
        bounds = Bounds(MOST_FILES + 1, seconds=_LONGEST_SECONDS)
        with (self._folder / uid / f"{index['folders'].index(path)}.tar").open("rb") as archive:
            try:
                restore_folder(descriptor, archive.fileno(), bounds)
            except WorkFailed as error:
                if error.reason == "Failed":  # of this host, and not of the archive
                    raise OSError(errno.EIO, str(error)) from error
                raise DamagedArchive(f"the saved files of {path} can't be read back: {error}; {_REMEDY}") from error

    def remove(self, uid: str) -> None:
        """Remove what is saved of an object: at once, whatever ends this process meanwhile."""
        place, trash = self._folder / uid, self._folder / f"{uid}{_GONE}"
        with self._lock:
            if not self._folder.is_dir():
                return
            for name in (f"{uid}{_NEW}", f"{uid}{_OLD}", trash.name):
                shutil.rmtree(self._folder / name, ignore_errors=True)
            with suppress(FileNotFoundError):
                place.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)

    def sweep(self, uids: Collection[str]) -> None:
        """Remove what is saved of other objects than these, a day after they were missed first. Raises OSError.

        The day is for a store that was set back: its next form may have them again.
        """
        for place in self._folder.iterdir() if self._folder.is_dir() else ():
            uid, mark = place.name.partition(".")[0], place / _MISSED
            with suppress(FileNotFoundError, NotADirectoryError):  # removed meanwhile
                if uid in uids:
                    mark.unlink(missing_ok=True)
                elif not mark.exists():
                    mark.touch(mode=0o600)
                    os.utime(mark, (self._now(), self._now()))
                elif self._now() - mark.stat().st_mtime >= _MISSED_SECONDS:
                    log.info("saved files removed, as their object is gone: %s", uid)
                    self.remove(uid)

    def _index(self, uid: str) -> dict[str, Any] | None:
        with self._lock:
            place, old = self._folder / uid, self._folder / f"{uid}{_OLD}"
            if old.is_dir() and not place.is_dir():  # a crash between two renames
                old.rename(place)
        try:
            index: dict[str, Any] = json.loads((place / _INDEX).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DamagedArchive(f"the saved files can't be read back: {error}; {_REMEDY}") from error
        return index

    def _create(self, path: Path) -> BinaryIO:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    def _free_bytes(self) -> int:
        folder = next(ancestor for ancestor in (self._folder, *self._folder.parents) if ancestor.is_dir())
        usage = os.statvfs(folder)
        return usage.f_bavail * usage.f_frsize


def _is_empty(descriptor: int) -> bool:
    """Return True if a tmpfs has no file but its own folder."""
    usage = os.fstatvfs(descriptor)
    return usage.f_files - usage.f_ffree <= 1


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
