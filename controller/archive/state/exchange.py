"""Exchange with an engine whose folders can't be opened: a layer of an image becomes an archive.

A layer names what it deletes (`.wh.NAME`); an archive has the marks of an overlay in these places.
"""

import os
import stat
import tarfile
from collections.abc import Callable, Collection, Iterator
from typing import IO

from ..names import Parts, Unsafe, parts_of
from ..tar import BLOCK, END, TarError
from . import blocks
from .bounds import Bounds, Meter, Report
from .save import OPAQUE

_DELETED, _OPAQUE_MARK, _RESERVED = b".wh.", b".wh..wh..opq", b".wh..wh."
_ATTRIBUTE = blocks.ATTRIBUTE.decode()
_PIECE_BYTES = 1 << 20
_NANOSECONDS = 1_000_000_000

Member = tuple[tarfile.TarFile, tarfile.TarInfo, Parts]


def from_layer(
    layer: IO[bytes],
    write: Callable[[bytes], object],
    bounds: Bounds = Bounds(),
    mount_points: Collection[bytes] = (),
) -> Report:
    """Write a layer of an image as an archive with deletions; what is at or below a mount point is left out.

    `layer` is an open file, which is read twice. Raises BoundExceeded, TarError, Unsafe, OSError.
    """
    points = frozenset(parts_of(point) for point in mount_points)
    converter = _Converter(write, bounds)
    try:
        marks = (parts for _, _, parts in _members(layer) if parts and parts[-1] == _OPAQUE_MARK)
        converter.opaque_folders = frozenset(parts[:-1] for parts in marks)
        for archive, member, parts in _members(layer):
            if not any(parts[: len(point)] == point for point in points):
                converter.add(archive, member, parts)
    except tarfile.TarError as error:
        raise TarError(f"the engine's layer can't be read: {error}") from error
    converter.end()
    return converter.report


def _members(layer: IO[bytes]) -> Iterator[Member]:
    layer.seek(0)
    with tarfile.open(fileobj=layer, mode="r|*", encoding="utf-8", errors="surrogateescape") as archive:
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # else it keeps all of them in memory
            yield archive, member, parts_of(os.fsencode(member.name))


class _Converter:
    def __init__(self, write: Callable[[bytes], object], bounds: Bounds) -> None:
        self.report = Report()
        self.opaque_folders: frozenset[Parts] = frozenset()
        self._write, self._meter = write, Meter(bounds, self.report)

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: Parts) -> None:
        """Write one entry of the layer."""
        path = b"/".join(parts)
        self._meter.count_entry()
        self._meter.check_path(path, len(parts))
        name = parts[-1] if parts else b""
        if name.startswith(_RESERVED):
            return
        if name.startswith(_DELETED):
            self._head(member, (*parts[:-1], name.removeprefix(_DELETED)), blocks.DEVICE)
        elif member.isdir():
            mark = ((blocks.ATTRIBUTE + os.fsencode(OPAQUE), b"y"),) if parts in self.opaque_folders else ()
            self._head(member, parts, blocks.FOLDER, records=mark)
        elif member.issym():
            self._head(member, parts, blocks.SYMLINK, target=os.fsencode(member.linkname))
        elif member.islnk():
            self._head(member, parts, blocks.HARD_LINK, target=b"/".join(parts_of(os.fsencode(member.linkname))))
        elif member.isfifo():
            self._head(member, parts, blocks.FIFO)
        elif member.isreg():
            self._file(archive, member, parts)
        else:
            self.report.omit(path, "it is a device")

    def end(self) -> None:
        """Write the end of the archive."""
        self._put(END)

    def _file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: Parts) -> None:
        data = archive.extractfile(member)
        if data is None:
            raise Unsafe("a file of the layer has no data")
        self._head(member, parts, blocks.FILE, size=member.size)
        self._meter.count_bytes(member.size)
        while piece := data.read(_PIECE_BYTES):
            self._put(piece)
            self._meter.check_time()
        self._put(bytes(-member.size % BLOCK))

    def _head(
        self,
        member: tarfile.TarInfo,
        parts: Parts,
        flag: bytes,
        size: int = 0,
        target: bytes = b"",
        records: blocks.Records = (),
    ) -> None:
        owner = (member.uid, member.gid) if flag != blocks.DEVICE else (0, 0)
        self.report.add_owner(*owner)
        if flag in (blocks.FILE, blocks.FOLDER):
            records = (*records, *self._attributes(member, parts))
        path = (b"/".join(parts[:-1]), parts[-1]) if parts else (b"", b".")
        mtime_ns = int(member.mtime * _NANOSECONDS)
        data = blocks.header(path, flag, stat.S_IMODE(member.mode), owner, size, mtime_ns, target, records)
        if len(data) > BLOCK:
            self._meter.check_header(len(data) - 2 * BLOCK)
        self._put(data)

    def _attributes(self, member: tarfile.TarInfo, parts: Parts) -> Iterator[tuple[bytes, bytes]]:
        for key, value in member.pax_headers.items():
            if key.startswith(_ATTRIBUTE + "user."):
                yield os.fsencode(key), os.fsencode(value)
            elif key.startswith(_ATTRIBUTE):
                self.report.omit(b"/".join(parts), f"its attribute {key.removeprefix(_ATTRIBUTE)} is not saved")

    def _put(self, data: bytes) -> None:
        self._meter.count_archive(len(data))
        self._write(data)
