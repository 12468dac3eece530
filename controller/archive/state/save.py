"""Saver of a folder that nobody changes meanwhile: its sandbox is frozen, stopped or not started yet.

Left out and reported: sockets, devices, file systems that are mounted below, and attributes that only the host's
security modules or the kernel give. Every link is saved as it is, and none is followed.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ..folders import open_folder
from ..tar import BLOCK, END
from . import blocks
from .bounds import Bounds, Meter, Report

OPAQUE = "trusted.overlay.opaque"
# Marks of an overlay that describe files of a lower layer: a copy of the upper folder would lose those files.
_REFERENCES = frozenset(("trusted.overlay.redirect", "trusted.overlay.metacopy"))
_ACLS = frozenset(("system.posix_acl_access", "system.posix_acl_default"))
_PIECE_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_ATTRIBUTES = (errno.EOPNOTSUPP, errno.ENODATA)


class ForeignLayer(Exception):
    """The upper folder refers to files of lower layers (redirect, metacopy), so that no copy of it is whole."""


class Content(NamedTuple):
    """Parts of a folder that are saved.

    `deletions`: the marks of an overlay for deleted files and replaced folders, too. `mount_points`: paths relative to
    the folder that are left out without a report.
    """

    deletions: bool = False
    mount_points: Collection[bytes] = ()


def save(
    folder: int, write: Callable[[bytes], object], bounds: Bounds = Bounds(), content: Content = Content()
) -> Report:
    """Write the folder's content and its own attributes as an archive. `folder` stays open.

    `write` takes all bytes that it gets. Raises BoundExceeded, ForeignLayer, OSError.
    """
    saver = _Saver(folder, write, bounds, content)
    saver.run(folder)
    return saver.report


class _Level(NamedTuple):
    folder: int
    path: bytes
    entries: Iterator[os.DirEntry[str]]


class _Saver:
    def __init__(self, folder: int, write: Callable[[bytes], object], bounds: Bounds, content: Content) -> None:
        self.report = Report()
        self._write, self._meter, self._content = write, Meter(bounds, self.report), content
        self._device = os.fstat(folder).st_dev
        self._names: dict[int, bytes] = {}  # first name of each file with several, by inode
        self._pieces: list[bytes] = []
        self._piece_bytes = 0

    def run(self, folder: int) -> None:
        levels: list[_Level] = []
        try:
            self._enter(os.dup(folder), (b"", b"."), b"", levels)
            while levels:
                level = levels[-1]
                entry = next(level.entries, None)
                if entry is None:
                    _close(levels.pop())
                    continue
                name = os.fsencode(entry.name)
                path = level.path + b"/" + name if level.path else name
                if path in self._content.mount_points:
                    continue
                try:
                    self._entry(level, entry, name, path, levels)
                except FileNotFoundError:
                    self.report.omit(path, "it was deleted meanwhile")
                except OSError as error:
                    raise OSError(error.errno, error.strerror, path) from error
        finally:
            while levels:
                _close(levels.pop())
        self._put(END)
        self._flush()

    def _entry(self, level: _Level, entry: os.DirEntry[str], name: bytes, path: bytes, levels: list[_Level]) -> None:
        self._meter.count_entry()
        self._meter.check_path(path, len(levels))
        if entry.is_file(follow_symlinks=False):
            self._file(level, name, path)
        elif entry.is_dir(follow_symlinks=False):
            self._enter(open_folder(name, level.folder), (level.path, name), path, levels)
        else:
            self._special(level, name, path)

    def _enter(self, folder: int, parts: tuple[bytes, bytes], path: bytes, levels: list[_Level]) -> None:
        status = os.fstat(folder)
        try:
            if status.st_dev != self._device:
                self.report.omit(path, "another file system is mounted there")
                records: blocks.Records = ()
            else:
                records = self._attributes(folder, path)
            self._head(parts, blocks.FOLDER, status, 0, b"", records)
            if status.st_dev == self._device:
                levels.append(_Level(folder, path, os.scandir(folder)))
                folder = -1
        finally:
            if folder >= 0:
                os.close(folder)

    def _special(self, level: _Level, name: bytes, path: bytes) -> None:
        status = os.stat(name, dir_fd=level.folder, follow_symlinks=False)
        parts, kind = (level.path, name), stat.S_IFMT(status.st_mode)
        # A restore links only files: each name of a symlink is a symlink.
        if status.st_nlink > 1 and kind != stat.S_IFLNK and self._is_linked(parts, path, status):
            return
        if kind == stat.S_IFLNK:
            target = os.readlink(name, dir_fd=level.folder)
            self._head(parts, blocks.SYMLINK, status, 0, target, ())
        elif kind == stat.S_IFIFO:
            self._head(parts, blocks.FIFO, status, 0, b"", ())
        elif kind == stat.S_IFCHR and not status.st_rdev and self._content.deletions:
            self._head(parts, blocks.DEVICE, status, 0, b"", ())
        else:
            self._names.pop(status.st_ino, None)
            self.report.omit(path, "it is a socket" if kind == stat.S_IFSOCK else "it is a device")

    def _file(self, level: _Level, name: bytes, path: bytes) -> None:
        file = os.open(name, _READ, dir_fd=level.folder)
        try:
            status = os.fstat(file)
            parts = (level.path, name)
            if not stat.S_ISREG(status.st_mode):
                self.report.omit(path, "it changed meanwhile")
                return
            if status.st_nlink > 1 and self._is_linked(parts, path, status):
                return
            records = self._attributes(file, path)
            if status.st_blocks * 512 < status.st_size:
                segments = _segments(file, status.st_size)
                if segments != [(0, status.st_size)]:
                    self._sparse_file(file, path, status, records, segments)
                    return
            self._head(parts, blocks.FILE, status, status.st_size, b"", records)
            self._copy(file, path, 0, status.st_size)
            self._put(bytes(-status.st_size % BLOCK))
        finally:
            os.close(file)

    def _sparse_file(
        self,
        file: int,
        path: bytes,
        status: os.stat_result,
        records: blocks.Records,
        segments: list[tuple[int, int]],
    ) -> None:
        """Save only the data of a file with holes, after a map of their places."""
        end = sum(segments[-1]) if segments else 0
        places = segments if end == status.st_size else [*segments, (status.st_size, 0)]
        text = b"%d\n" % len(places) + b"".join(b"%d\n%d\n" % place for place in places)
        text += bytes(-len(text) % BLOCK)
        size = len(text) + sum(length for _, length in segments)
        records = (*blocks.sparse_records(path, status.st_size), *records)
        self._head((b"", b"GNUSparseFile.0"), blocks.FILE, status, size, b"", records)
        self._put(text)
        for start, length in segments:
            self._copy(file, path, start, length)
        self._put(bytes(-size % BLOCK))

    def _copy(self, file: int, path: bytes, start: int, size: int) -> None:
        self._meter.count_bytes(size)
        end = start + size
        while start < end:
            piece = os.pread(file, min(end - start, _PIECE_BYTES), start)
            if not piece:
                self.report.omit(path, "it shrank meanwhile, so that zeros replace its end")
                piece = bytes(min(end - start, _PIECE_BYTES))
            start += len(piece)
            self._put(piece)
            if start < end:
                self._meter.check_time()

    def _is_linked(self, parts: tuple[bytes, bytes], path: bytes, status: os.stat_result) -> bool:
        """Save a further name of a file as a link to its first; False for the first one."""
        if stat.S_ISCHR(status.st_mode):  # all deletions of an overlay may be one inode
            return False
        first = self._names.setdefault(status.st_ino, path)
        if first == path:
            return False
        self._head(parts, blocks.HARD_LINK, status, 0, first, ())
        return True

    def _head(
        self,
        parts: tuple[bytes, bytes],
        flag: bytes,
        status: os.stat_result,
        size: int,
        target: bytes,
        records: blocks.Records,
    ) -> None:
        uid, gid = status.st_uid, status.st_gid
        if uid not in self.report.uids or gid not in self.report.gids:
            self.report.add_owner(uid, gid)
        mode = stat.S_IMODE(status.st_mode)
        data = blocks.header(parts, flag, mode, (uid, gid), size, status.st_mtime_ns, target, records)
        if len(data) > BLOCK:
            self._meter.check_header(len(data) - 2 * BLOCK)
        self._put(data)

    def _attributes(self, file: int, path: bytes) -> blocks.Records:
        try:
            names = os.listxattr(file)
        except OSError as error:
            if error.errno in _NO_ATTRIBUTES:
                return ()
            raise
        records = []
        for name in names:
            if name in _REFERENCES and self._content.deletions:
                raise ForeignLayer("the files refer to those of lower layers (redirect_dir or metacopy of overlayfs)")
            if name.startswith("user.") or name in _ACLS or (name == OPAQUE and self._content.deletions):
                records.append((blocks.ATTRIBUTE + os.fsencode(name), os.getxattr(file, name)))
            elif name == "security.capability":
                self.report.omit(path, "its capabilities are not saved")
        return tuple(records)

    def _put(self, data: bytes) -> None:
        self._pieces.append(data)
        self._piece_bytes += len(data)
        if self._piece_bytes >= _PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._meter.count_archive(self._piece_bytes)
        self._write(b"".join(self._pieces))
        self._pieces.clear()
        self._piece_bytes = 0


def _close(level: _Level) -> None:
    level.entries.close()  # type: ignore[attr-defined]
    os.close(level.folder)


def _segments(file: int, size: int) -> list[tuple[int, int]]:
    """Return offset and length of the data of a file with holes."""
    segments, end = [], 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                break
            if error.errno == errno.EINVAL:  # a file system without holes
                return [(0, size)]
            raise
        segments.append((start, min(end, size) - start))
    return segments
