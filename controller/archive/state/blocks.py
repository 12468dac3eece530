"""Header blocks of the archives: ustar, with pax records for long names, attributes and holes (GNU sparse 1.0).

Numbers that octal digits can't hold are in base 256, as GNU tar writes them. The nanoseconds of a time are in the last,
unused bytes of the block, so that a file needs one block; other readers see whole seconds.
"""

from collections.abc import Iterable
from typing import NamedTuple
from zlib import adler32

from ..tar import BLOCK, TarError

FILE, HARD_LINK, SYMLINK, DEVICE, FOLDER, FIFO, EXTENDED = b"0", b"1", b"2", b"3", b"5", b"6", b"x"
ATTRIBUTE = b"SCHILY.xattr."
_SPARSE_NAME, _SPARSE_SIZE = b"GNU.sparse.name", b"GNU.sparse.realsize"
_SPARSE_VERSION = ((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"))
_RECORDS = frozenset((b"path", b"linkpath", _SPARSE_NAME, _SPARSE_SIZE, *(key for key, _ in _SPARSE_VERSION)))
_NAME_BYTES, _PREFIX_BYTES, _TARGET_BYTES = 100, 155, 100
_ID_MAX, _NUMBER_MAX = 0o7777777, 0o77777777777
_TIME_MAX = 1 << 62  # seconds; far above each file system's
_ID_LIMIT = (1 << 32) - 1  # -1 means "unchanged" to chown
_OWNERS = b"\0" * 64 + b"%07o\0%07o\0" % (0, 0)  # no names of owners; device numbers are 0:0
_MAGIC = b"ustar\00000"
_NANOSECONDS = 1_000_000_000

Records = tuple[tuple[bytes, bytes], ...]


class Header(NamedTuple):
    """One entry of an archive."""

    name: bytes
    """Path as written: not to be trusted."""
    flag: bytes
    """Type of the entry."""
    mode: int
    """Permission bits."""
    uid: int
    """Id of its user."""
    gid: int
    """Id of its group."""
    size: int
    """Bytes in the archive."""
    mtime_ns: int
    """Time of the last change (Unix nanoseconds)."""
    target: bytes
    """Target of a link as written: not to be trusted."""
    attributes: Records
    """Extended attributes."""
    sparse: bool
    """It has holes, which are not in the archive."""
    real_size: int
    """Bytes of the file; more than `size` if it is sparse."""
    device: tuple[int, int]
    """Major and minor number of a device."""


def block(
    path: tuple[bytes, bytes], flag: bytes, mode: int, owner: tuple[int, int], size: int, mtime_ns: int, target: bytes
) -> bytes:
    """Return one header block; `path` is the folder's path and the name, at most 155 and 100 bytes."""
    seconds, nanoseconds = divmod(mtime_ns, _NANOSECONDS)
    uid, gid = owner
    if uid <= _ID_MAX and gid <= _ID_MAX and size <= _NUMBER_MAX and 0 <= seconds <= _NUMBER_MAX:
        numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0        " % (mode, uid, gid, size, seconds)
    else:
        numbers = b"%07o\0%b%b%b%b        " % (
            mode,
            _number(uid, 8),
            _number(gid, 8),
            _number(size, 12),
            _number(seconds, 12),
        )
    head = b"".join(
        (
            path[1].ljust(_NAME_BYTES, b"\0"),
            numbers,
            flag,
            target.ljust(_TARGET_BYTES, b"\0"),
            _MAGIC,
            _OWNERS,
            path[0].ljust(_PREFIX_BYTES, b"\0"),
            b"%011d\0" % nanoseconds,
        )
    )
    return b"%b%06o\0 %b" % (head[:148], _sum(head), head[156:])


def header(
    path: tuple[bytes, bytes],
    flag: bytes,
    mode: int,
    owner: tuple[int, int],
    size: int,
    mtime_ns: int,
    target: bytes = b"",
    records: Records = (),
) -> bytes:
    """Return the header blocks of an entry: one, or three and more with extended records."""
    folder, name = path
    if len(name) > _NAME_BYTES or len(folder) > _PREFIX_BYTES:
        records = ((b"path", folder + b"/" + name if folder else name), *records)
        folder, name = b"", name[:_NAME_BYTES]
    if len(target) > _TARGET_BYTES:
        records = ((b"linkpath", target), *records)
        target = target[:_TARGET_BYTES]
    entry = block((folder, name), flag, mode, owner, size, mtime_ns, target)
    return extended(records) + entry if records else entry


def extended(records: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the blocks of an extended header."""
    data = b"".join(_record(key, value) for key, value in records)
    return (
        block((b"", b"././@PaxHeader"), EXTENDED, 0o644, (0, 0), len(data), 0, b"") + data + bytes(-len(data) % BLOCK)
    )


def sparse_records(name: bytes, real_size: int) -> Records:
    """Return the records of a file with holes."""
    return (*_SPARSE_VERSION, (_SPARSE_NAME, name), (_SPARSE_SIZE, b"%d" % real_size))


def parse(head: bytes) -> Header:
    """Parse a header block. Raises TarError."""
    checksum = head[148:156]
    if _parsed_number(checksum) != _sum(head) - sum(checksum) + 256 or head[257:265] != _MAGIC:
        raise TarError("this is not an archive of Paddock, or it is damaged (a checksum does not match)")
    name, prefix = _text(head[:100]), _text(head[345:500])
    nanoseconds = head[500:511]
    if not nanoseconds.isdigit() or int(nanoseconds) >= _NANOSECONDS:
        raise TarError("an entry is damaged (invalid time)")
    size, seconds = _parsed_number(head[124:136]), _parsed_number(head[136:148])
    uid, gid = _parsed_number(head[108:116]), _parsed_number(head[116:124])
    if size < 0 or abs(seconds) > _TIME_MAX or not (0 <= uid < _ID_LIMIT and 0 <= gid < _ID_LIMIT):
        raise TarError("an entry is damaged (a number is out of range)")
    return Header(
        name=prefix + b"/" + name if prefix else name,
        flag=head[156:157],
        mode=_parsed_number(head[100:108]) & 0o7777,
        uid=uid,
        gid=gid,
        size=size,
        mtime_ns=seconds * _NANOSECONDS + int(nanoseconds),
        target=_text(head[157:257]),
        attributes=(),
        sparse=False,
        real_size=size,
        device=(_parsed_number(head[329:337]), _parsed_number(head[337:345])),
    )


def complete(entry: Header, data: bytes) -> Header:
    """Return the entry with the values of its extended header. Raises TarError."""
    values: dict[bytes, bytes] = {}
    attributes = []
    for key, value in _parsed_records(data):
        if key.startswith(ATTRIBUTE):
            attributes.append((key.removeprefix(ATTRIBUTE), value))
        elif key in _RECORDS:
            values[key] = value
        else:
            raise TarError("an extended header has a record that Paddock does not write")
    name, target = values.get(b"path", entry.name), values.get(b"linkpath", entry.target)
    sparse, real_size = _SPARSE_SIZE in values, entry.size
    if sparse:
        size = values[_SPARSE_SIZE]
        if not size.isdigit() or len(size) > 19 or any(values.get(key) != value for key, value in _SPARSE_VERSION):
            raise TarError("an extended header is damaged (holes)")
        name, real_size = values.get(_SPARSE_NAME, name), int(size)
    return entry._replace(name=name, target=target, attributes=tuple(attributes), sparse=sparse, real_size=real_size)


def _parsed_records(data: bytes) -> Iterable[tuple[bytes, bytes]]:
    start = 0
    while start < len(data):
        space = data.find(b" ", start, start + 8)
        digits = data[start:space] if space > 0 else b""
        end = start + int(digits) if digits.isdigit() else 0
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not equals or end > len(data) or end <= space or data[end - 1 : end] != b"\n":
            raise TarError("an extended header is damaged")
        yield key, value
        start = end


def _record(key: bytes, value: bytes) -> bytes:
    tail = b" %b=%b\n" % (key, value)
    length = len(tail) + len(b"%d" % len(tail))
    while len(b"%d" % length) + len(tail) != length:
        length = len(b"%d" % length) + len(tail)
    return b"%d" % length + tail


def _number(value: int, width: int) -> bytes:
    """Encode a number in base 256, with the mark of GNU tar in the first byte."""
    data = bytearray(value.to_bytes(width, "big", signed=True))
    data[0] |= 0x80
    return bytes(data)


def _parsed_number(field: bytes) -> int:
    digits = field.strip(b" \0")
    if digits.isdigit():
        try:
            return int(digits, 8)
        except ValueError as error:
            raise TarError("this is not a tar archive, or it is damaged (invalid number)") from error
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        return value - (1 << bits) if field[0] == 0xFF else value - (1 << (bits - 1))
    if digits:
        raise TarError("this is not a tar archive, or it is damaged (invalid number)")
    return 0


def _sum(data: bytes) -> int:
    """Return the sum of at most 512 bytes.

    By the low half of Adler-32, which is that sum and 1, below 65,521: eight times as quick as adding them here.
    """
    return (adler32(data[:256]) & 0xFFFF) + (adler32(data[256:]) & 0xFFFF) - 2


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]
