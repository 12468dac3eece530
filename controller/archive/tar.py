"""Tar streams in constant memory: written as ustar with pax headers, read as GNU tar, pax and Docker write them.

Archives of untrusted sandboxes may be unpacked by root: they carry permission bits only, and no owner.

The standard library's reader keeps every member, and reads headers of any size into memory. This one is bounded. Only
sizes and names of an archive are trusted; see names.py for the names that may be unpacked.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

BLOCK = 512
PIECE_BYTES = 1 << 18
END = bytes(2 * BLOCK)
NOBODY = 65534  # owner of every written entry: root, who unpacks owners too, gives no file to root
PERMISSIONS = 0o777  # mode bits that are written: no set-user-ID, set-group-ID or sticky bit
_HEADER_BYTES = 64 << 10  # of one extended header
_OCTAL_MAX = 0o77777777777
# Our keywords in a global header: notes of the packer to the reader. Other readers ignore them.
SKIPPED, CHANGED, FAILED = b"PADDOCK.skipped", b"PADDOCK.changed", b"PADDOCK.failed"
_NOTES = (SKIPPED, CHANGED, FAILED)

Type = Literal["file", "folder", "link", "hardlink", "special", "note"]
_TYPES: dict[bytes, Type] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"5": "folder",
    b"2": "link",
    b"1": "hardlink",
    b"3": "special",
    b"4": "special",
    b"6": "special",
}
_FLAGS: dict[Type, bytes] = {"file": b"0", "folder": b"5", "link": b"2", "hardlink": b"1", "special": b"6"}


class TarError(Exception):
    """Unreadable tar stream; the message says why."""


class Entry(NamedTuple):
    """One entry. `mode` is permission bits, `mtime` whole Unix seconds, `size` the bytes of data that follow.

    `target` is a link's target. A note has its keyword as `name`, and its text as `target`.
    """

    name: bytes
    type: Type = "file"
    size: int = 0
    mode: int = 0o644
    mtime: int = 0
    target: bytes = b""


def header(entry: Entry) -> bytes:
    """Return the header blocks of an entry; its data, padded with `padding`, follow."""
    records = {}
    name = entry.name + b"/" if entry.type == "folder" else entry.name
    if len(name) > 100:
        records[b"path"] = name
    if len(entry.target) > 100:
        records[b"linkpath"] = entry.target
    if entry.size > _OCTAL_MAX:
        records[b"size"] = b"%d" % entry.size
    if not 0 <= entry.mtime <= _OCTAL_MAX:
        records[b"mtime"] = b"%d" % entry.mtime
    extended = _extended(b"x", records) if records else b""
    mtime = min(max(entry.mtime, 0), _OCTAL_MAX)
    size = min(entry.size, _OCTAL_MAX)
    return extended + _block(
        name[:100], _FLAGS[entry.type], size, mode=entry.mode, mtime=mtime, target=entry.target[:100]
    )


def note(keyword: bytes, text: bytes) -> bytes:
    """Return a note to the reader, as blocks."""
    return _extended(b"g", {keyword: text[: _HEADER_BYTES // 2]})


def padding(size: int) -> bytes:
    """Return the padding of the last block after `size` bytes of data."""
    return bytes(-size % BLOCK)


def _extended(flag: bytes, records: dict[bytes, bytes]) -> bytes:
    data = b"".join(_record(key, value) for key, value in records.items())
    return _block(b"././@PaxHeader", flag, len(data), mode=0o644, mtime=0, target=b"") + data + padding(len(data))


def _record(key: bytes, value: bytes) -> bytes:
    body = b" %s=%s\n" % (key, value)
    length = len(body) + len(b"%d" % len(body))
    while len(b"%d" % length) + len(body) != length:
        length = len(b"%d" % length) + len(body)
    return b"%d" % length + body


def _block(name: bytes, flag: bytes, size: int, mode: int, mtime: int, target: bytes) -> bytes:
    head = (
        name.ljust(100, b"\0")
        + b"%07o\0" % (mode & PERMISSIONS)
        + b"%07o\0" % NOBODY * 2
        + b"%011o\0" % size
        + b"%011o\0" % mtime
        + b" " * 8
        + flag
        + target.ljust(100, b"\0")
        + b"ustar\00000"
    ).ljust(BLOCK, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


class Reader:
    """Reader of a stream. `read(n)` returns 1 to n bytes, b"" at the end.

    Iterate it; within an iteration `pieces` yields the entry's data. Unread data is skipped.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._unread = 0  # unread data of this entry
        self._pad = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in order. Raises TarError, also for a truncated stream."""
        overrides: dict[bytes, bytes] = {}
        while True:
            for _ in self.pieces():
                pass
            head = self._exactly(BLOCK)
            if head.count(0) == BLOCK:
                return
            flag, entry = _parsed(head)
            if flag in (b"x", b"g", b"L", b"K"):
                data = self._small(entry.size)
                if flag == b"g":
                    yield from _notes(data)
                else:
                    overrides |= _overrides(flag, data)
                continue
            entry, overrides = _completed(flag, entry, overrides), {}
            self._unread, self._pad = entry.size, -entry.size % BLOCK
            yield entry

    def pieces(self) -> Iterator[bytes]:
        """Yield the data of the current entry."""
        while self._unread:
            piece = self._read(min(self._unread, PIECE_BYTES))
            if not piece:
                raise TarError("the archive ends in the middle of a file")
            self._unread -= len(piece)
            yield piece
        pad, self._pad = self._pad, 0
        self._exactly(pad)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._read(count - len(data))
            if not piece:
                raise TarError("the archive is truncated: its end mark is missing")
            data += piece
        return data

    def _small(self, size: int) -> bytes:
        if not 0 <= size <= _HEADER_BYTES:
            raise TarError(f"an extended header of {size} bytes is too large")
        data = self._exactly(size)
        self._exactly(-size % BLOCK)
        return data


def _parsed(head: bytes) -> tuple[bytes, Entry]:
    """Parse a header block into its type flag and entry."""
    if _number(head[148:156]) != sum(head[:148]) + 256 + sum(head[156:]):
        raise TarError("this is not a tar archive, or it is damaged (a checksum does not match)")
    name, prefix = _text(head[:100]), _text(head[345:500])
    if prefix and head[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    entry = Entry(
        name,
        size=_number(head[124:136]),
        mode=_number(head[100:108]) & 0o7777,
        mtime=_number(head[136:148]),
        target=_text(head[157:257]),
    )
    return head[156:157], entry


def _completed(flag: bytes, entry: Entry, overrides: dict[bytes, bytes]) -> Entry:
    """Return the entry with the values of its extended headers."""
    if any(key.startswith(b"GNU.sparse") for key in overrides) or flag not in _TYPES:
        raise TarError(f"an entry of the type {flag!r} can't be read; write the archive without sparse files")
    type_ = _TYPES[flag]
    name = overrides.get(b"path", entry.name)
    if type_ == "file" and name.endswith(b"/"):
        type_ = "folder"  # as in the oldest format
    size = _decimal(overrides[b"size"]) if b"size" in overrides else entry.size
    if size < 0:
        raise TarError("an entry has a negative size")
    mtime = _decimal(overrides[b"mtime"]) if b"mtime" in overrides else entry.mtime
    target = overrides.get(b"linkpath", entry.target)
    return Entry(name, type_, size=size if type_ == "file" else 0, mode=entry.mode, mtime=mtime, target=target)


def _overrides(flag: bytes, data: bytes) -> dict[bytes, bytes]:
    if flag == b"L":
        return {b"path": _text(data)}
    if flag == b"K":
        return {b"linkpath": _text(data)}
    return dict(_records(data))


def _notes(data: bytes) -> Iterator[Entry]:
    for key, value in _records(data):
        if key in _NOTES:
            yield Entry(key, "note", target=value)


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    while data:
        length, space, _ = data[:20].partition(b" ")
        count = int(length) if length.isdigit() else 0
        key, equals, value = data[len(length) + 1 : count - 1].partition(b"=")
        if not space or not equals or count > len(data) or data[count - 1 : count] != b"\n":
            raise TarError("an extended header is damaged")
        yield key, value
        data = data[count:]


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Parse octal digits, or base 256 as GNU tar writes larger numbers."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        return value - (1 << bits) if field[0] == 0xFF else value - (1 << (bits - 1))
    digits = field.strip(b" \0")
    if digits and not all(digit in b"01234567" for digit in digits):
        raise TarError("this is not a tar archive, or it is damaged (invalid number)")
    return int(digits, 8) if digits else 0


def _decimal(value: bytes) -> int:
    """Parse the whole part of a decimal number."""
    integer_text = value.partition(b".")[0]
    digits = integer_text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 19:
        raise TarError("an extended header is damaged (invalid number)")
    return int(integer_text)
