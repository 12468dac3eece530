"""Packer of a file, link or tree into a tar stream, in constant memory, without following symlinks.

Special files are skipped and reported in the stream. A file that shrinks meanwhile is padded with zeros and reported.
Holes of a sparse file are packed as zeros without being read.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from .folders import open_folder
from .names import DEPTH
from .tar import CHANGED, END, FAILED, PIECE_BYTES, SKIPPED, Entry, header, note, padding

_SPAN_BYTES = 1 << 20
_ZEROS = bytes(PIECE_BYTES)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR)


class Span(NamedTuple):
    """At most `size` bytes of an open file at its offset.

    They must be read before the next piece is requested; if none are, the file has ended.
    """

    fd: int
    size: int

    def read(self) -> bytes:
        """Read the bytes. Raises OSError."""
        return os.read(self.fd, min(self.size, PIECE_BYTES))


Piece = bytes | Span


def pack(parent: int, name: bytes, top: bytes, leave_out: Callable[[int], str] = lambda _fd: "") -> Iterator[Piece]:
    """Pack `name` in the folder `parent` as `top` in the archive.

    `.` as top: only the content of the folder. `leave_out` returns the reason to skip an open folder, or an empty
    string. Errors during the stream become its last entry; OSError before the first.
    """
    file_stat = os.stat(name, dir_fd=parent, follow_symlinks=False)
    packer = _Packer(leave_out)
    try:
        yield from packer.entry(parent, name, top, file_stat)
    except OSError as error:
        where = os.fsencode(error.filename) if error.filename else top
        yield note(FAILED, where + b": " + (error.strerror or str(error)).encode())
        return
    yield END


def read_out(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Read all pieces as bytes. Raises OSError."""
    for piece in pieces:
        yield piece.read() if isinstance(piece, Span) else piece


def pack_file(fd: int, name: bytes) -> Iterator[Piece]:
    """Pack one open regular file."""
    yield from _file(fd, name, os.fstat(fd))
    yield END


class _Packer:
    def __init__(self, leave_out: Callable[[int], str]) -> None:
        self._leave_out = leave_out

    def entry(self, parent: int, name: bytes, packed_name: bytes, file_stat: os.stat_result) -> Iterator[Piece]:
        if stat.S_ISLNK(file_stat.st_mode):
            with suppress(FileNotFoundError):
                target = os.readlink(name, dir_fd=parent)
                yield header(Entry(packed_name, "link", mode=0o777, mtime=int(file_stat.st_mtime), target=target))
        elif stat.S_ISDIR(file_stat.st_mode):
            yield from self._tree(parent, name, packed_name)
        elif stat.S_ISREG(file_stat.st_mode):
            yield from self._opened(parent, name, packed_name)
        else:
            yield note(SKIPPED, packed_name + b"\0it is a socket, a FIFO or a device")

    def _opened(self, parent: int, name: bytes, packed_name: bytes) -> Iterator[Piece]:
        try:
            fd = os.open(name, _READ, dir_fd=parent)
        except OSError as error:
            yield from _unreadable(error, packed_name)
            return
        try:
            yield from _file(fd, packed_name, os.fstat(fd))
        finally:
            os.close(fd)

    def _tree(self, parent: int, name: bytes, packed_name: bytes) -> Iterator[Piece]:
        """Pack a folder tree depth first, with two descriptors for each level."""
        walks: list[tuple[int, Iterator[os.DirEntry[str]], bytes]] = []
        try:
            yield from self._enter(parent, name, packed_name, walks)
            while walks:
                folder, names, path = walks[-1]
                dir_entry = next(names, None)
                if dir_entry is None:
                    _leave(walks)
                    continue
                child = os.fsencode(dir_entry.name)
                way = child if path == b"." else path + b"/" + child
                try:
                    file_stat = os.stat(child, dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted meanwhile
                if stat.S_ISDIR(file_stat.st_mode):
                    yield from self._enter(folder, child, way, walks)
                else:
                    yield from self.entry(folder, child, way, file_stat)
        finally:
            while walks:
                _leave(walks)

    def _enter(
        self, parent: int, name: bytes, packed_name: bytes, walks: list[tuple[int, Iterator[os.DirEntry[str]], bytes]]
    ) -> Iterator[bytes]:
        try:
            fd = open_folder(name, parent)
        except OSError as error:
            yield from _unreadable(error, packed_name)
            return
        why = self._leave_out(fd)
        if len(walks) >= DEPTH:
            why = f"it is nested deeper than {DEPTH} folders"
        if why:
            os.close(fd)
            yield note(SKIPPED, packed_name + b"\0" + why.encode())
            return
        walks.append((fd, os.scandir(fd), packed_name))
        file_stat = os.fstat(fd)
        if packed_name != b".":
            yield header(
                Entry(packed_name, "folder", mode=stat.S_IMODE(file_stat.st_mode), mtime=int(file_stat.st_mtime))
            )


def _leave(walks: list[tuple[int, Iterator[os.DirEntry[str]], bytes]]) -> None:
    fd, names, _ = walks.pop()
    names.close()  # type: ignore[attr-defined]
    os.close(fd)


def _unreadable(error: OSError, packed_name: bytes) -> Iterator[bytes]:
    """Handle an unreadable entry: ignore a deleted one, report one without permission."""
    if error.errno == errno.EACCES:
        yield note(SKIPPED, packed_name + b"\0permission denied")
    elif error.errno not in _GONE:
        raise OSError(error.errno, error.strerror, packed_name) from error


def _file(fd: int, packed_name: bytes, file_stat: os.stat_result) -> Iterator[Piece]:
    if not stat.S_ISREG(file_stat.st_mode):
        yield note(SKIPPED, packed_name + b"\0it is no longer a file")
        return
    size = file_stat.st_size
    yield header(Entry(packed_name, "file", size, stat.S_IMODE(file_stat.st_mode), int(file_stat.st_mtime)))
    yield from contents(fd, file_stat)
    count = os.lseek(fd, 0, os.SEEK_CUR)
    yield from _zeros(size - count)
    yield padding(size)
    if count < size:
        yield note(CHANGED, packed_name)


def contents(fd: int, file_stat: os.stat_result) -> Iterator[Piece]:
    """Yield the content of an open file up to its initial size; less if it shrinks. Its offset is the end.

    Holes are yielded as zeros without being read: on a tmpfs, reading one into a pipe can allocate it.
    """
    size = file_stat.st_size
    at, end = 0, 0 if file_stat.st_blocks * 512 < size else size  # data reach from `at` to `end`
    while at < size:
        if at == end:
            begin, end = _data(fd, at, size)
            yield from _zeros(begin - at)
            os.lseek(fd, begin, os.SEEK_SET)
            if at == end:
                return
            at = begin
            continue
        yield Span(fd, min(end - at, _SPAN_BYTES))
        before, at = at, os.lseek(fd, 0, os.SEEK_CUR)
        if at == before:
            return


def _data(fd: int, at: int, size: int) -> tuple[int, int]:
    """Return begin and end of the data at or after `at`. Both `size`: none; both `at`: the file has shrunk."""
    try:
        begin = os.lseek(fd, at, os.SEEK_DATA)
        end = os.lseek(fd, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a file system without holes
            return at, size
        begin = end = size if os.fstat(fd).st_size >= size else at
    return min(begin, size), min(end, size)


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[:count]
        count -= len(_ZEROS)
