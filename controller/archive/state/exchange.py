"""Exchange with an engine whose folders can't be opened: a layer of an image becomes an archive.

A layer names what it deletes (`.wh.NAME`); an archive has the marks of an overlay in these places. Code in a sandbox
makes such names, too: what no restore would accept is omitted.
"""

import json
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
_MANIFEST_BYTES = 1 << 20
_NANOSECONDS = 1_000_000_000

Member = tuple[tarfile.TarFile, tarfile.TarInfo, Parts]


def from_image(
    image: IO[bytes],
    write: Callable[[bytes], object],
    bounds: Bounds = Bounds(),
    mount_points: Collection[bytes] = (),
) -> Report:
    """Write the top layer of one saved image as `from_layer` does. Raises as it does."""
    try:
        with tarfile.open(fileobj=image, mode="r:") as archive:
            manifest = archive.extractfile("manifest.json")
            if manifest is None:
                raise TarError("the engine's archive of an image has no manifest")
            (listed,) = json.loads(manifest.read(_MANIFEST_BYTES))
            top = archive.extractfile(listed["Layers"][-1])
            if top is None:
                raise TarError("the engine's archive of an image lacks its layer")
            return from_layer(top, write, bounds, mount_points)
    except (tarfile.TarError, LookupError, TypeError, ValueError) as error:
        raise TarError(f"the engine's archive of an image can't be read: {error}") from error


def from_layer(
    layer: IO[bytes],
    write: Callable[[bytes], object],
    bounds: Bounds = Bounds(),
    mount_points: Collection[bytes] = (),
) -> Report:
    """Write a layer of an image as an archive with deletions; what is at or below a mount point is left out.

    `layer` is an open file, which is read twice. Raises BoundExceeded, TarError, Unsafe, OSError.
    """
    converter = _Converter(write, bounds, frozenset(parts_of(point) for point in mount_points))
    try:
        for _, member, parts in _members(layer):
            converter.look_at(member, parts)
        for archive, member, parts in _members(layer):
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
    def __init__(self, write: Callable[[bytes], object], bounds: Bounds, mount_points: Collection[Parts]) -> None:
        self.report = Report()
        self._write, self._meter, self._mount_points = write, Meter(bounds, self.report), mount_points
        self._first_meter = Meter(bounds, Report())  # of the first pass
        self._opaque_folders: set[Parts] = set()
        self._deleted: set[Parts] = set()
        self._present: set[Parts] = set()  # entries that a mark of deletion names, too
        self._files: set[Parts] = set()  # of the archive: only these are linked

    def look_at(self, member: tarfile.TarInfo, parts: Parts) -> None:
        """Read one entry's name in the first pass."""
        self._first_meter.count_entry()
        self._first_meter.check_path(b"/".join(parts), len(parts))
        self._first_meter.count_bytes(member.size)
        name = parts[-1] if parts else b""
        if name == _OPAQUE_MARK:
            self._opaque_folders.add(parts[:-1])
        elif name.startswith(_DELETED):
            self._deleted.add(_target(parts))

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: Parts) -> None:
        """Write one entry of the layer."""
        self._meter.count_entry()
        self._meter.check_path(b"/".join(parts), len(parts))
        name = parts[-1] if parts else b""
        if name.startswith(_RESERVED) or self._is_mounted(parts):
            return
        if name.startswith(_DELETED):
            self._deletion(member, parts)
            return
        if parts in self._deleted:
            self._present.add(parts)
        self._entry(archive, member, parts)

    def _is_mounted(self, parts: Parts) -> bool:
        return any(parts[: len(point)] == point for point in self._mount_points)

    def _deletion(self, member: tarfile.TarInfo, parts: Parts) -> None:
        target = _target(parts)
        if target[-1] in (b"", b".", b".."):
            self.report.omit(b"/".join(parts), "its name is a mark of a deletion, but names nothing")
        elif target in self._present:
            self.report.omit(b"/".join(parts), "its name is a mark of a deletion, but that file is there")
        elif not self._is_mounted(target):
            self._head(member, target, blocks.DEVICE)

    def _entry(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: Parts) -> None:
        path = b"/".join(parts)
        if not parts and not member.isdir():
            self.report.omit(path, "it has no name")
        elif member.isdir():
            mark = ((blocks.ATTRIBUTE + os.fsencode(OPAQUE), b"y"),) if parts in self._opaque_folders else ()
            self._head(member, parts, blocks.FOLDER, records=mark)
        elif member.issym():
            self._head(member, parts, blocks.SYMLINK, target=os.fsencode(member.linkname))
        elif member.islnk():
            self._hard_link(member, parts)
        elif member.isfifo():
            self._head(member, parts, blocks.FIFO)
            self._files.add(parts)
        elif member.isreg():
            self._file(archive, member, parts)
            self._files.add(parts)
        else:
            self.report.omit(path, "it is a device")

    def _hard_link(self, member: tarfile.TarInfo, parts: Parts) -> None:
        target = parts_of(os.fsencode(member.linkname))
        if target not in self._files:
            self.report.omit(b"/".join(parts), "it is a further name of what is no file of the layer")
            return
        self._head(member, parts, blocks.HARD_LINK, target=b"/".join(target))
        self._files.add(parts)

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


def _target(parts: Parts) -> Parts:
    """Return what a mark of a deletion names."""
    return (*parts[:-1], parts[-1].removeprefix(_DELETED))
