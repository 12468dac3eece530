"""GET and POST /files: files as bytes, of any size in constant memory, by an access token or a signed URL."""

import asyncio
import posixpath
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from controller.e2b.envd.file_work import FileWork, Upload, kind_of
from controller.e2b.envd.workplace import Workplace
from controller.e2b.identity import check_user
from controller.e2b.parts import Stream
from controller.kinds.runtime.files import FileRequest
from controller.service.errors import BadRequest, NotFound, ServiceError, TooLarge
from controller.service.sandbox.files import Work

_MOST_HEAD_BYTES, _MOST_FILES = 16 << 10, 1000
_GZIP = 16 + zlib.MAX_WBITS
_PIECE_BYTES = 256 << 10
_METADATA = "x-metadata-"


class FilesCalls:
    """The calls."""

    def __init__(self, files: FileWork) -> None:
        self._files = files

    async def read(self, place: Workplace, request: Request) -> Response:
        """Answer with a file's bytes."""
        path = self._path(place, request, required=True)
        work = await self._files.begin(place, FileRequest("read", path))
        try:
            item = await self._files.run(work.result)
        except ServiceError as error:
            await self._files.close(work)
            raise _read_error(error, path) from error
        except BaseException:
            await self._files.close(work)
            raise
        name = quote(posixpath.basename(path) or "file", safe="")
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
            "x-content-type-options": "nosniff",
            "content-security-policy": "sandbox",
            "vary": "accept-encoding",
        }
        packs = request.headers.get("accept-encoding", "") == "gzip"  # only who asks for nothing else
        headers |= {"content-encoding": "gzip"} if packs else {"content-length": str(item["size"])}
        pieces = _packed(self._pieces(work)) if packs else self._pieces(work)
        return Stream(pieces, media_type="application/octet-stream", headers=headers)

    async def _pieces(self, work: Work) -> AsyncIterator[bytes]:
        try:
            while piece := await self._files.run(work.receive):
                yield piece
            await self._files.run(work.result)  # raises if the file was cut off: the body stays unfinished
        finally:
            await self._files.close(work)

    async def write(self, place: Workplace, request: Request) -> Response:
        """Write the request's files, each once it is complete; their folders are created."""
        if any(name.startswith(_METADATA) for name in request.headers):
            raise BadRequest("metadata of files is not offered; leave it out")
        path = self._path(place, request, required=False)
        announced = request.headers.get("content-length", "0")
        self._files.files.refuse_larger(int(announced) if announced.isdigit() else 0)
        media_type, options = parse_options_header(request.headers.get("content-type", ""))
        if media_type == b"multipart/form-data":
            files_written = await self._write_parts(place, path, self._body(request), options.get(b"boundary", b""))
        elif path:
            files_written = [await self._write_one(place, path, self._body(request))]
        else:
            raise BadRequest("path: is missing; name the file in the query")
        return JSONResponse(files_written)

    async def _write_one(self, place: Workplace, path: str, pieces: AsyncIterator[bytes]) -> Mapping[str, Any]:
        async with self._files.opened(place, FileRequest("write", path, parents=True)) as work:
            upload = Upload(self._files, work)
            async for piece in pieces:
                await upload.add(piece)
            await upload.end()
        return _write_info(path)

    async def _write_parts(
        self, place: Workplace, path: str, pieces: AsyncIterator[bytes], boundary: bytes
    ) -> list[Mapping[str, Any]]:
        if not 0 < len(boundary) <= 256:
            raise BadRequest("Content-Type: has no boundary; send multipart/form-data with one")
        form, files_written = _Form(boundary), list[Mapping[str, Any]]()
        current: tuple[Work, Upload, str] | None = None
        try:
            async for piece in pieces:
                for event in form.add(piece):
                    if isinstance(event, _Begin):
                        name = path or (place.absolute(event.file_name) if event.file_name else "")
                        if not name:
                            raise BadRequest("a part has no file name; name the file in the query, or in the part")
                        if len(files_written) >= _MOST_FILES:
                            raise TooLarge(f"the request has more than {_MOST_FILES} files; send fewer at a time")
                        work = await self._files.begin(place, FileRequest("write", name, parents=True))
                        current = work, Upload(self._files, work), name
                    elif current is not None and event is not None:
                        await current[1].add(event)
                    elif current is not None:
                        await current[1].end()
                        await self._files.close(current[0])
                        files_written.append(_write_info(current[2]))
                        current = None
            form.end()
        finally:
            if current is not None:
                await self._files.close(current[0])
        return files_written

    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body, unpacked. Raises BadRequest for a client that stalls or leaves."""
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise BadRequest(f"Content-Encoding: `{encoding[:40]}` is not gzip; send it as it is")
        unpack = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        body = request.stream().__aiter__()
        stall = self._files.files.limits.stall_seconds
        while True:
            try:
                async with asyncio.timeout(stall):
                    piece = await anext(body)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise BadRequest(f"nothing was sent for {stall:g} s (transfer_stall_seconds); send it again") from None
            except ClientDisconnect:
                raise BadRequest("the client disconnected") from None
            if unpack is None:
                yield piece
                continue
            try:
                while piece:  # a few bytes may unpack to very many: in pieces
                    yield unpack.decompress(piece, _PIECE_BYTES)
                    piece = unpack.unconsumed_tail
            except zlib.error as error:
                raise BadRequest(f"the body is not valid gzip: {error}") from None
        if unpack is not None:
            yield unpack.flush()
            if not unpack.eof:
                raise BadRequest("the body ends within its gzip stream; send all of its bytes")

    def _path(self, place: Workplace, request: Request, *, required: bool) -> str:
        check_user(request.query_params.get("username", ""))
        path = request.query_params.get("path", "")
        if not path and required:
            raise BadRequest("path: is missing; name the file in the query")
        return place.absolute(path) if path else ""


@dataclass(frozen=True, slots=True)
class _Begin:
    """The begin of a part, with its file name."""

    file_name: str


class _Form:
    """Parts of a multipart body as events: `_Begin`, pieces of its data, None at its end."""

    def __init__(self, boundary: bytes) -> None:
        self._events: list[_Begin | bytes | None] = []
        self._field, self._value, self._headers = b"", b"", dict[bytes, bytes]()
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._head("_field", data[start:end]),
                "on_header_value": lambda data, start, end: self._head("_value", data[start:end]),
                "on_header_end": self._header,
                "on_headers_finished": self._begin_part,
                "on_part_data": lambda data, start, end: self._events.append(data[start:end]),
                "on_part_end": lambda: self._events.append(None),
                "on_end": self._end,
            },
        )

    def add(self, piece: bytes) -> list[_Begin | bytes | None]:
        """Return the events of a piece. Raises BadRequest."""
        try:
            self._parser.write(piece)
        except ValueError as error:  # the base class of the parser's errors
            raise BadRequest(f"the body is not valid multipart/form-data: {error}") from None
        events, self._events = self._events, []
        return events

    def end(self) -> None:
        """Raise BadRequest if the body ended early."""
        if not self._ended:
            raise BadRequest("the body ends within a part; send all of its bytes")

    def _begin(self) -> None:
        self._field, self._value, self._headers = b"", b"", {}

    def _head(self, name: str, data: bytes) -> None:
        value = getattr(self, name) + data
        if len(value) > _MOST_HEAD_BYTES:
            raise ValueError("a part's header is too long")
        setattr(self, name, value)

    def _header(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _begin_part(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._events.append(_Begin(options.get(b"filename", b"").decode("utf-8", "surrogateescape")))

    def _end(self) -> None:
        self._ended = True


async def _packed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    pack = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    async for piece in pieces:
        if data := pack.compress(piece):
            yield data
    yield pack.flush()


def _write_info(path: str) -> Mapping[str, Any]:
    return {"path": path, "name": posixpath.basename(path), "type": "file"}


def _read_error(error: ServiceError, path: str) -> ServiceError:
    """Return the error of a read as clients expect its status."""
    if kind_of(error) == "IsAFolder":
        return BadRequest(f"path '{path}' is a directory")
    return NotFound(f"path '{path}' does not exist") if kind_of(error) == "NotFound" else error
