"""Context of an image build: a bounded tar archive of plain files, folders and links that stay inside."""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping

from controller.archive.names import Unsafe, leads_out, parts_of, shown
from controller.archive.tar import END, PIECE_BYTES, Entry, Reader, TarError, header, padding
from controller.kinds.common.quantity import format_bytes
from controller.service.errors import BadRequest, TooLarge

DOCKERFILE = ".paddock.Dockerfile"  # the name of the Dockerfile that policy has read
_MAX_ENTRIES = 50_000
_IN_PLACE = "; pack the folder itself, as `paddock image build` does"


class Context:
    """The files of a build. `archive` is a tar archive of them, at most `limit_bytes` in all. Raises ServiceErrors."""

    def __init__(self, archive: bytes, limit_bytes: int) -> None:
        self._entries: list[tuple[Entry, bytes]] = []
        if len(archive) > limit_bytes:
            raise too_large(limit_bytes)
        try:
            self._read(archive)
        except (TarError, Unsafe) as error:
            raise BadRequest(f"the context can't be used: {error}{_IN_PLACE}") from error

    def _read(self, archive: bytes) -> None:
        reader = Reader(io.BytesIO(archive).read)
        self._entries = [(entry, b"".join(reader.pieces())) for entry in _check(reader)]

    def text(self, path: str) -> str | None:
        """Return a file's text; None if there is none. Raises BadRequest for one that is not text."""
        for entry, data in self._entries:
            if entry.name == path.encode() and entry.type == "file":
                try:
                    return data.decode()
                except UnicodeDecodeError as error:
                    raise BadRequest(f"{path}: the file is not text in UTF-8; save it so") from error
        return None

    def digest(self, dockerfile: str) -> str:
        """Return a short hash of everything that is built."""
        hasher = hashlib.sha256(dockerfile.encode())
        for entry, data in sorted(self._entries, key=lambda pair: pair[0].name):
            hasher.update(b"%s\0%s\0%d\0%s\0" % (entry.name, entry.target, len(data), entry.type.encode()))
            hasher.update(data)
        return hasher.hexdigest()[:16]

    def pack(self, dockerfile: str) -> bytes:
        """Return the archive for the engine, with that Dockerfile in it as DOCKERFILE."""
        return b"".join(self._pieces(dockerfile.encode()))

    def _pieces(self, dockerfile: bytes) -> Iterator[bytes]:
        for entry, data in self._entries:
            if entry.name != DOCKERFILE.encode():
                yield header(entry)
                yield data + padding(len(data))
        yield from _ending(dockerfile)


def streamed(archive: Iterator[bytes], dockerfile: str, limit_bytes: int) -> Iterator[bytes]:
    """Yield the archive for the engine as `archive` comes, with that Dockerfile in it as DOCKERFILE.

    Raises BadRequest as soon as something in it can't be used, and TooLarge.
    """
    buffer = bytearray()
    for piece in _pack(archive, dockerfile, limit_bytes):
        buffer += piece
        if len(buffer) >= PIECE_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def _pack(archive: Iterator[bytes], dockerfile: str, limit_bytes: int) -> Iterator[bytes]:
    total = 0
    reader = Reader(_reading(archive))
    try:
        for entry in _check(reader):
            if entry.name == DOCKERFILE.encode():
                continue
            total += entry.size
            if total > limit_bytes:
                raise TooLarge(f"the files have more than {format_bytes(limit_bytes)}")
            yield header(entry)
            yield from reader.pieces()
            yield padding(entry.size)
    except (TarError, Unsafe) as error:
        raise BadRequest(f"the files can't be used: {error}") from error
    yield from _ending(dockerfile.encode())


def _check(reader: Reader) -> Iterator[Entry]:
    """Yield the entries with plain names. Raises TarError or Unsafe."""
    count = 0
    for entry in reader:
        if entry.type == "note":
            continue
        parts = parts_of(entry.name)
        if entry.type in ("hardlink", "special"):
            raise Unsafe(f"{shown(entry.name)}: a hard link or a device")
        if entry.type == "link" and leads_out(parts, entry.target):
            raise Unsafe(f"{shown(entry.name)}: the link leads out of the context")
        if count >= _MAX_ENTRIES:
            raise TarError(f"it has more than {_MAX_ENTRIES} files")
        if parts:
            count += 1
            yield entry._replace(name=b"/".join(parts))


def _reading(pieces: Iterator[bytes]) -> Callable[[int], bytes]:
    """Return a `read(n)` over pieces of any size."""
    piece, at = b"", 0

    def read(count: int) -> bytes:
        nonlocal piece, at
        if at == len(piece):
            piece, at = next(pieces, b""), 0
        chunk = piece[at : at + count]
        at += len(chunk)
        return chunk

    return read


def _ending(dockerfile: bytes) -> Iterator[bytes]:
    yield header(Entry(DOCKERFILE.encode(), size=len(dockerfile)))
    yield dockerfile + padding(len(dockerfile)) + END


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Return files by their paths as a tar archive, for `Context`. Folders are made as needed."""
    pieces = []
    for name, data in files.items():
        pieces += [header(Entry(name.encode(), size=len(data))), data, padding(len(data))]
    return b"".join((*pieces, END))


def too_large(limit_bytes: int) -> TooLarge:
    """Return the error for a context over the limit."""
    message = f"the context is larger than {format_bytes(limit_bytes)} (setting image_context_bytes)"
    return TooLarge(f"{message}; leave out what the build does not copy")
