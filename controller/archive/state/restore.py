"""Restorer of an archive into a folder. It believes nothing: each entry may come from hostile code.

Created are files, folders, symlinks (never followed, so that any target is fine), hard links to files of the archive,
FIFOs, and the two marks of deletion of an overlay. All else ends the restore.
"""

import errno
import os
import stat
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from ..folders import open_folder
from ..moving import write_all
from ..names import PART_BYTES, PATH_BYTES, Parts, Unsafe, parts_of, shown
from ..tar import BLOCK, END, TarError
from . import blocks
from .bounds import BoundExceeded, Bounds, Meter, Report
from .save import OPAQUE

_READ_BYTES = 1 << 20
_MAP_NUMBERS = 1 << 20  # of one file's map of holes
_MOST_DIGITS = 19  # of one of them: it fits into 64 bits
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = frozenset((blocks.FILE, blocks.HARD_LINK, blocks.SYMLINK, blocks.DEVICE, blocks.FOLDER, blocks.FIFO))
_ACLS = frozenset((b"system.posix_acl_access", b"system.posix_acl_default"))
_ACL_VERSION, _ACL_ENTRY = struct.pack("<I", 2), struct.Struct("<HHI")
_ACL_USER, _ACL_GROUP = 0x02, 0x08
_NO_ID = 0xFFFFFFFF

Owner = Callable[[int, int], tuple[int, int]]
Result = TypeVar("Result")


def _same(uid: int, gid: int) -> tuple[int, int]:
    return uid, gid


class Rules(NamedTuple):
    """Conditions on an archive.

    `owner` returns the new owner for one in the archive, and raises Unsafe for one that is not expected. `deletions`:
    the marks of an overlay are created. `modes` are the mode bits that are kept (0o1777: no setuid and setgid).
    `mount_points`: paths relative to the folder; an archive with something at or below one is refused.
    """

    owner: Owner = _same
    deletions: bool = False
    modes: int = 0o7777
    mount_points: Collection[bytes] = ()


def restore(folder: int, read: Callable[[int], bytes], bounds: Bounds = Bounds(), rules: Rules = Rules()) -> Report:
    """Create the content of an archive in the folder, which also gets the saved attributes. `folder` stays open.

    `read(n)` returns 1 to n bytes, b"" at the end. A file of the same name is replaced. Raises Unsafe, TarError,
    BoundExceeded, OSError: what was created until then stays, and is the caller's to remove.
    """
    restorer = _Restorer(folder, read, bounds, rules)
    restorer.run()
    return restorer.report


def verify(read: Callable[[int], bytes], bounds: Bounds = Bounds(), rules: Rules = Rules()) -> Report:
    """Read an archive to its end as `restore` does, and create nothing. Raises Unsafe, TarError, BoundExceeded."""
    restorer = _Restorer(-1, read, bounds, rules)
    restorer.verify()
    return restorer.report


def packed(
    read: Callable[[int], bytes], report: Report, bounds: Bounds = Bounds(), rules: Rules = Rules()
) -> Iterator[bytes]:
    """Yield an archive as a tar that an engine unpacks over an image: with the new owners, without deletions.

    What it can't have is omitted in `report`. Raises Unsafe, TarError, BoundExceeded.
    """
    yield from _Restorer(-1, read, bounds, rules, report).pieces()


class _Source:
    """Buffered stream of an archive."""

    def __init__(self, read: Callable[[int], bytes], report: Report) -> None:
        self._read, self._report = read, report
        self._data, self._start = b"", 0

    def exactly(self, count: int) -> bytes:
        """Return so many bytes. Raises TarError at the end of the stream."""
        data = self.some(count)
        while len(data) < count:
            data += self.some(count - len(data))
        return data

    def some(self, count: int) -> bytes:
        """Return 1 to `count` bytes. Raises TarError at the end of the stream."""
        if self._start == len(self._data):
            self._data, self._start = self._read(_READ_BYTES), 0
            self._report.archive_bytes += len(self._data)
            if not self._data and count:
                raise TarError("the archive is truncated")
        data = self._data[self._start : self._start + count]
        self._start += len(data)
        return data


class _Restorer:
    def __init__(
        self, folder: int, read: Callable[[int], bytes], bounds: Bounds, rules: Rules, report: Report | None = None
    ) -> None:
        self.report = report or Report()
        self._bounds, self._rules = bounds, rules
        self._meter, self._source = Meter(bounds, self.report), _Source(read, self.report)
        self._folders = _Folders(folder, self._finish)
        self._mount_points = frozenset(parts_of(path) for path in rules.mount_points)
        self._files: set[Parts] = set()  # of the archive: only these are linked

    def run(self) -> None:
        try:
            for entry in self._entries():
                parts = parts_of(entry.name)
                self._check(entry, parts)
                try:
                    self._create(entry, parts)
                except OSError as error:
                    raise OSError(error.errno, error.strerror, shown(entry.name)) from error
            self._folders.finish()
        finally:
            self._folders.close()

    def verify(self) -> None:
        for entry in self._entries():
            parts = parts_of(entry.name)
            self._check(entry, parts)
            self.report.add_owner(*self._rules.owner(entry.uid, entry.gid))
            if entry.flag == blocks.HARD_LINK and parts_of(entry.target) not in self._files:
                raise Unsafe(
                    f"{shown(entry.name)}: a hard link to {shown(entry.target)}, which is no file of the archive"
                )
            if entry.flag in (blocks.FILE, blocks.HARD_LINK, blocks.FIFO):
                self._files.add(parts)
            self._meter.count_bytes(entry.size)
            remaining = entry.size + -entry.size % BLOCK
            while remaining:
                remaining -= len(self._source.some(remaining))
                self._meter.check_time()

    def pieces(self) -> Iterator[bytes]:
        for entry in self._entries():
            parts = parts_of(entry.name)
            self._check(entry, parts)
            if entry.flag == blocks.DEVICE:
                self.report.omit(entry.name, "it was deleted, and is there again as its image has it")
                continue
            if parts:  # the top is the image's
                yield self._packed_head(entry, parts)
            self._meter.count_bytes(max(entry.size, entry.real_size))  # an engine writes holes as zeros
            remaining = entry.size + -entry.size % BLOCK
            while remaining:
                piece = self._source.some(remaining)
                remaining -= len(piece)
                self._meter.check_time()
                yield piece
        yield END

    def _packed_head(self, entry: blocks.Header, parts: Parts) -> bytes:
        owner = self._rules.owner(entry.uid, entry.gid)
        attributes = dict(entry.attributes)
        if attributes.pop(os.fsencode(OPAQUE), None):
            self.report.omit(entry.name, "it was replaced, and has the files of its image again, too")
        records: blocks.Records = tuple(
            (blocks.ATTRIBUTE + key, self._rewritten_acl(entry, value) if key in _ACLS else value)
            for key, value in attributes.items()
        )
        name = b"/".join(parts)
        if entry.sparse:
            records = (*blocks.sparse_records(name, entry.real_size), *records)
            name = b"GNUSparseFile.0"
        mode = entry.mode & self._rules.modes
        return blocks.header((b"", name), entry.flag, mode, owner, entry.size, entry.mtime_ns, entry.target, records)

    def _entries(self) -> Iterator[blocks.Header]:
        while (head := self._source.exactly(BLOCK)).count(0) != BLOCK:
            entry = blocks.parse(head)
            if entry.flag == blocks.EXTENDED:
                self._meter.check_header(entry.size)
                data = self._source.exactly(entry.size + -entry.size % BLOCK)[: entry.size]
                entry = blocks.complete(blocks.parse(self._source.exactly(BLOCK)), data)
            self._meter.count_entry()
            yield entry

    def _check(self, entry: blocks.Header, parts: Parts) -> None:
        name = shown(entry.name)
        if entry.flag not in _KINDS or (entry.flag == blocks.DEVICE and not self._rules.deletions):
            raise Unsafe(f"{name}: an entry of the type {entry.flag!r} is not restored")
        if entry.flag == blocks.DEVICE and entry.device != (0, 0):
            raise Unsafe(f"{name}: a device is not restored")
        if entry.flag != blocks.FILE and (entry.size or entry.sparse):
            raise Unsafe(f"{name}: only a file has data")
        if not parts and entry.flag != blocks.FOLDER:
            raise Unsafe(f"{name}: a file without a name is not restored")
        self._meter.check_path(entry.name, len(parts))
        if any(parts[: len(point)] == point for point in self._mount_points):
            raise Unsafe(f"{name}: it is at or below a mount point")
        if b"\0" in entry.target or len(entry.target) > PATH_BYTES:
            raise Unsafe(f"{name}: the target of a link is too long")
        for key, value in entry.attributes:
            self._check_attribute(entry, key, value)

    def _check_attribute(self, entry: blocks.Header, key: bytes, value: bytes) -> None:
        allowed = (key.startswith(b"user.") and len(key) <= PART_BYTES and b"\0" not in key) or key in _ACLS
        is_mark = os.fsencode(OPAQUE) == key and value == b"y" and entry.flag == blocks.FOLDER
        if entry.flag not in (blocks.FILE, blocks.FOLDER) or not (allowed or (is_mark and self._rules.deletions)):
            raise Unsafe(f"{shown(entry.name)}: the attribute {shown(key)} is not restored")

    def _create(self, entry: blocks.Header, parts: Parts) -> None:
        owner = self._rules.owner(entry.uid, entry.gid)
        self.report.add_owner(*owner)
        if entry.flag == blocks.FOLDER:
            self._folder(entry, parts, owner)
            return
        parent, name = self._folders.open(parts[:-1]), parts[-1]
        if entry.flag == blocks.FILE:
            self._file(entry, parts, parent, owner)
            self._files.add(parts)
            return
        if entry.flag == blocks.HARD_LINK:
            self._hard_link(entry, parts)
            self._files.add(parts)
            return
        if entry.flag == blocks.SYMLINK:
            _replace(name, parent, lambda: os.symlink(entry.target, name, dir_fd=parent))
        else:
            kind = stat.S_IFIFO if entry.flag == blocks.FIFO else stat.S_IFCHR
            _replace(name, parent, lambda: os.mknod(name, kind | 0o600, 0, dir_fd=parent))
            if entry.flag == blocks.FIFO:
                self._files.add(parts)
        os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
        if entry.flag != blocks.SYMLINK:
            # Not through a link: nobody else writes in this folder.
            os.chmod(name, entry.mode & self._rules.modes, dir_fd=parent)
        _set_time(entry, name, parent)

    def _folder(self, entry: blocks.Header, parts: Parts, owner: tuple[int, int]) -> None:
        if parts:
            parent = self._folders.open(parts[:-1])
            try:
                os.mkdir(parts[-1], 0o700, dir_fd=parent)
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
                    os.unlink(parts[-1], dir_fd=parent)
                    os.mkdir(parts[-1], 0o700, dir_fd=parent)
        folder = self._folders.open(parts)
        os.fchown(folder, *owner)
        os.fchmod(folder, entry.mode & self._rules.modes)
        self._folders.unfinished[parts] = entry

    def _file(self, entry: blocks.Header, parts: Parts, parent: int, owner: tuple[int, int]) -> None:
        name = parts[-1]
        file = _replace(name, parent, lambda: os.open(name, _NEW, 0o600, dir_fd=parent))
        try:
            if entry.sparse:
                self._sparse_data(entry, file)
            else:
                self._copy(file, entry.size)
            self._source.exactly(-entry.size % BLOCK)
            os.fchown(file, *owner)  # before the mode: it clears setuid
            os.fchmod(file, entry.mode & self._rules.modes)
            self._attributes(file, entry)
            _set_time(entry, file)
        finally:
            os.close(file)

    def _sparse_data(self, entry: blocks.Header, file: int) -> None:
        """Write a file with holes: the map first, then the data at their places."""
        numbers = self._map_numbers(entry)
        count, size = next(numbers), entry.real_size
        if count * 2 > _MAP_NUMBERS:
            raise BoundExceeded("header_bytes", f"{shown(entry.name)} has more than {_MAP_NUMBERS // 2} holes")
        places = [(next(numbers), next(numbers)) for _ in range(count)]
        end = 0
        for start, length in places:
            if start < end or start + length > size:
                raise TarError(f"{shown(entry.name)}: its map of holes is damaged")
            end = start + length
        if sum(length for _, length in places) + self._map_bytes != entry.size:
            raise TarError(f"{shown(entry.name)}: its map of holes is damaged")
        os.ftruncate(file, size)
        for start, length in places:
            os.lseek(file, start, os.SEEK_SET)
            self._copy(file, length)

    def _map_numbers(self, entry: blocks.Header) -> Iterator[int]:
        """Yield the numbers of a map of holes, a line each: how many pieces of data, then start and length of each.

        Count what was read of the archive in `_map_bytes`: the map fills whole blocks, and the data begin after it.
        """
        self._map_bytes, data = 0, b""
        while True:
            line, newline, tail = data.partition(b"\n")
            if newline:
                if not line.isdigit() or len(line) > _MOST_DIGITS:
                    break
                data = tail
                yield int(line)
                continue
            # A number and its newline at most; more data without a newline is no line of the map.
            if len(data) > _MOST_DIGITS + 1 or self._map_bytes + BLOCK > entry.size:
                break
            data += self._source.exactly(BLOCK)
            self._map_bytes += BLOCK
        raise TarError(f"{shown(entry.name)}: its map of holes is damaged")

    def _copy(self, file: int, size: int) -> None:
        self._meter.count_bytes(size)
        while size:
            piece = self._source.some(size)
            write_all(file, piece)
            size -= len(piece)
            if size:
                self._meter.check_time()

    def _hard_link(self, entry: blocks.Header, parts: Parts) -> None:
        target = parts_of(entry.target)
        if target not in self._files:
            raise Unsafe(f"{shown(entry.name)}: a hard link to {shown(entry.target)}, which is no file of the archive")
        parent, name = self._folders.open(parts[:-1]), parts[-1]
        origin = self._folders.open_apart(target[:-1])
        try:

            def link() -> None:
                os.link(target[-1], name, src_dir_fd=origin, dst_dir_fd=parent, follow_symlinks=False)

            if parts != target:
                _replace(name, parent, link)
        finally:
            os.close(origin)

    def _finish(self, folder: int, entry: blocks.Header) -> None:
        """Give a folder its attributes and time when it has its content, which would inherit an access list."""
        self._attributes(folder, entry)
        _set_time(entry, folder)

    def _attributes(self, file: int, entry: blocks.Header) -> None:
        for key, value in entry.attributes:
            data = self._rewritten_acl(entry, value) if key in _ACLS else value
            os.setxattr(file, key, data)

    def _rewritten_acl(self, entry: blocks.Header, value: bytes) -> bytes:
        """Return an access list with the new owners. Raises Unsafe."""
        head, data = value[:4], value[4:]
        if head != _ACL_VERSION or len(data) % _ACL_ENTRY.size:
            raise Unsafe(f"{shown(entry.name)}: its access list is damaged")
        rewritten = head
        for tag, permissions, number in _ACL_ENTRY.iter_unpack(data):
            if tag == _ACL_USER:
                number = self._rules.owner(number, entry.gid)[0]
            elif tag == _ACL_GROUP:
                number = self._rules.owner(entry.uid, number)[1]
            rewritten += _ACL_ENTRY.pack(tag, permissions, number)
        return rewritten


class _Folders:
    """Open folders from the top down to the one in use. `finish` is called for a folder that is left."""

    def __init__(self, top: int, finish: Callable[[int, blocks.Header], None]) -> None:
        self._top, self._finish = top, finish
        self._levels: list[tuple[bytes, int]] = []
        self._path: Parts = ()
        self.unfinished: dict[Parts, blocks.Header] = {}

    def open(self, parts: Parts) -> int:
        """Return the folder of those parts, which must exist. Raises Unsafe, OSError."""
        if parts != self._path:
            common = 0
            for mine, yours in zip(self._path, parts, strict=False):
                if mine != yours:
                    break
                common += 1
            while len(self._levels) > common:
                self._leave()
            for name in parts[common:]:
                self._levels.append((name, self._down(name)))
                self._path = (*self._path, name)
        return self._levels[-1][1] if self._levels else self._top

    def open_apart(self, parts: Parts) -> int:
        """Open another folder without leaving those in use; it is the caller's to close. Raises Unsafe, OSError."""
        other = _Folders(self._top, self._finish)
        try:
            return os.dup(other.open(parts))
        finally:
            other.close()

    def finish(self) -> None:
        """Leave all folders, and finish the top. Raises OSError."""
        while self._levels:
            self._leave()
        if top := self.unfinished.pop((), None):
            self._finish(self._top, top)

    def close(self) -> None:
        """Close all folders but the top."""
        while self._levels:
            os.close(self._levels.pop()[1])

    def _leave(self) -> None:
        entry = self.unfinished.pop(self._path, None)
        _, folder = self._levels.pop()
        self._path = self._path[:-1]
        try:
            if entry is not None:
                self._finish(folder, entry)
        finally:
            os.close(folder)

    def _down(self, name: bytes) -> int:
        parent = self._levels[-1][1] if self._levels else self._top
        try:
            return open_folder(name, parent)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                path = shown(b"/".join((*self._path, name)))
                raise Unsafe(f"{path} is no folder of the archive, but something is below it") from error
            raise


def _replace(name: bytes, parent: int, create: Callable[[], Result]) -> Result:
    """Create a file, in place of one with that name."""
    try:
        return create()
    except FileExistsError:
        os.unlink(name, dir_fd=parent)
        return create()


def _set_time(entry: blocks.Header, file: int | bytes, parent: int | None = None) -> None:
    times = (entry.mtime_ns, entry.mtime_ns)
    with suppress(OverflowError):  # before or after all that the kernel knows
        if parent is None:
            os.utime(file, ns=times)
        else:
            os.utime(file, ns=times, dir_fd=parent, follow_symlinks=False)
