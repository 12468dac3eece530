"""Files of a sandbox: read, write, list, stat, mkdir, remove, and whole trees as tar streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field
from starlette.requests import HTTPConnection

from controller.api.common import models
from controller.api.common.exact_query import exact
from controller.api.common.models import PREFIX
from controller.api.streams.transfer import Threads, WorkResponse, take_in
from controller.archive.tar import PERMISSIONS
from controller.kinds.runtime.files import FileRequest
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NoSpace,
    NotFound,
    ServiceUnavailable,
    TooLarge,
    TooManyRequests,
)
from controller.service.sandbox.files import SandboxFiles, Work

_FAILURES = models.failures(
    BadRequest, Forbidden, NotFound, Conflict, TooLarge, TooManyRequests, ServiceUnavailable, NoSpace
)
_BYTES, _TAR = "application/octet-stream", "application/x-tar"
_BINARY = {"schema": {"type": "string", "format": "binary"}}

_Path = Annotated[
    str,
    Query(
        min_length=1,
        max_length=4095,
        description="a path in the sandbox; a relative one starts where commands run, `~` is the home",
    ),
]
_Top = Annotated[
    str, Query(min_length=1, max_length=255, description="its name in the archive; `.` packs only its contents")
]


async def _path(connection: HTTPConnection, path: _Path) -> str:
    return exact(connection, "path", path)


async def _top(connection: HTTPConnection, top: _Top = ".") -> str:
    return exact(connection, "top", top)


async def _folder(connection: HTTPConnection, path: _Path = ".") -> str:
    return exact(connection, "path", path)


Path = Annotated[str, Depends(_path)]
Folder = Annotated[str, Depends(_folder)]
Parents = Annotated[bool, Query(description="create missing parent folders")]
Top = Annotated[str, Depends(_top)]
Mode = Annotated[
    str | None,
    Query(pattern="^0?[0-7]{3}$", description="permission bits in octal; default: the replaced file's"),
]


class FileInfo(models.Shape):
    """A file, folder or symlink in the sandbox. `mode` is octal digits, `modified` Unix seconds."""

    name: str
    type: Literal["file", "folder", "symlink", "other"]
    size: int
    mode: str
    uid: int
    gid: int
    modified: float
    target: str = Field(default="", description="target of a symlink")


class FileList(models.Shape):
    """A folder's entries by name. `truncated` if there are more than the limit."""

    items: list[FileInfo]
    truncated: bool


class FileRemoved(models.Shape):
    """Result of a removal."""


class ArchiveUnpacked(models.Shape):
    """Result of an unpack. `leftOut` lists the first hundred of `leftOutCount` skipped entries, with reasons."""

    files: int
    bytes: int
    leftOut: list[str]
    leftOutCount: int


def _json(model: Any) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **_FAILURES}


def _out(media_type: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media_type: _BINARY}, "description": "the data"}, **_FAILURES}


def _body(media_type: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: _BINARY}}}


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])
_PATH = "/namespaces/{namespace}/sandboxes/{name}/files"


class FileRequests:
    """File operations of one application's requests, on threads of their own."""

    def __init__(self, files: SandboxFiles) -> None:
        self._files, self._threads = files, Threads(files)

    @asynccontextmanager
    async def _open_work(self, namespace: str, name: str, ask: FileRequest) -> AsyncIterator[Work]:
        work = await self._threads.run(self._files.begin, SANDBOX, namespace, name, ask)
        try:
            yield work
        finally:
            await self._threads.close(work)

    async def result(self, namespace: str, name: str, ask: FileRequest) -> JSONResponse:
        """Return the result of an operation without data."""
        async with self._open_work(namespace, name, ask) as work:
            return JSONResponse(await self._threads.run(work.result))

    async def download(self, namespace: str, name: str, ask: FileRequest) -> Response:
        """Answer with the operation's data."""
        work = await self._threads.run(self._files.begin, SANDBOX, namespace, name, ask)
        try:
            info = await self._threads.run(work.result)
        except BaseException:
            await self._threads.close(work)
            raise
        sized = {"content-length": str(info["size"])} if ask.op == "read" else {}
        return WorkResponse(
            work,
            self._threads,
            media_type=_BYTES if ask.op == "read" else _TAR,
            headers={
                "x-paddock-mode": f"{int(info['mode'], 8) & PERMISSIONS:04o}",
                "x-paddock-type": info["type"],
                **sized,
            },
        )

    async def upload(self, request: Request, namespace: str, name: str, ask: FileRequest) -> JSONResponse:
        """Give the request's body to the operation."""
        announced = request.headers.get("content-length", "0")
        self._files.refuse_larger(int(announced) if announced.isdigit() else 0)
        async with self._open_work(namespace, name, ask) as work:
            return JSONResponse(await take_in(request, work, self._threads, self._files))


async def _file_requests(request: Request) -> FileRequests:
    file_requests: FileRequests = request.app.state.file_requests
    return file_requests


Files = Annotated[FileRequests, Depends(_file_requests)]


@routes.get(_PATH, operation_id="readSandboxFile", responses=_out(_BYTES), response_class=Response)
async def read(files: Files, namespace: str, name: str, path: Path) -> Response:
    """The bytes of a regular file. Its mode is in the header X-Paddock-Mode."""
    return await files.download(namespace, name, FileRequest("read", path))


@routes.put(_PATH, operation_id="writeSandboxFile", responses=_json(FileInfo), openapi_extra=_body(_BYTES))
async def write(
    files: Files,
    request: Request,
    namespace: str,
    name: str,
    path: Path,
    mode: Mode = None,
    parents: Parents = True,
) -> JSONResponse:
    """Create or replace a regular file, atomically once the whole body is received. A symlink is replaced."""
    ask = FileRequest("write", path, mode=_octal(mode), parents=parents)
    return await files.upload(request, namespace, name, ask)


@routes.delete(_PATH, operation_id="removeSandboxFile", responses=_json(FileRemoved))
async def remove(
    files: Files,
    namespace: str,
    name: str,
    path: Path,
    recursive: Annotated[bool, Query(description="remove a folder with its contents")] = False,
) -> JSONResponse:
    """Remove a file, a symlink or a folder."""
    return await files.result(namespace, name, FileRequest("remove", path, recursive=recursive))


@routes.get(_PATH + "/stat", operation_id="statSandboxFile", responses=_json(FileInfo))
async def stat(
    files: Files,
    namespace: str,
    name: str,
    path: Path,
    follow: Annotated[bool, Query(description="follow a symlink at the end of the path")] = True,
) -> JSONResponse:
    """Type, size, mode and owner of a path."""
    return await files.result(namespace, name, FileRequest("stat", path, follow=follow))


@routes.get(_PATH + "/list", operation_id="listSandboxFiles", responses=_json(FileList))
async def list_(
    files: Files,
    namespace: str,
    name: str,
    path: Folder,
    limit: Annotated[int, Query(ge=1, le=10_000, description="maximum number of entries")] = 1000,
) -> JSONResponse:
    """The entries of a folder; without `path` of that where commands run."""
    return await files.result(namespace, name, FileRequest("list", path, limit=limit))


@routes.post(_PATH + "/folder", operation_id="makeSandboxFolder", responses=_json(FileInfo))
async def mkdir(
    files: Files,
    namespace: str,
    name: str,
    path: Path,
    parents: Annotated[bool, Query(description="create parent folders too; an existing folder is no error")] = False,
) -> JSONResponse:
    """Create a folder (0755)."""
    return await files.result(namespace, name, FileRequest("mkdir", path, parents=parents, mode=0o755))


@routes.get(_PATH + "/archive", operation_id="readSandboxArchive", responses=_out(_TAR), response_class=Response)
async def pack(
    files: Files,
    namespace: str,
    name: str,
    path: Path,
    top: Annotated[
        str,
        Query(min_length=1, max_length=255, description="its name in the archive; `.` packs only its contents"),
    ] = ".",
    follow: Annotated[bool, Query(description="follow a symlink to a file at the end of the path")] = False,
) -> Response:
    """A file, symlink or tree as a tar stream. Skipped entries are listed in it (PADDOCK.skipped, pax headers).

    Entries have permission bits (no setuid, setgid or sticky bit) and the owner and group 65534 (nobody).
    """
    return await files.download(namespace, name, FileRequest("pack", path, top=top, follow=follow))


@routes.put(
    _PATH + "/archive",
    operation_id="writeSandboxArchive",
    responses=_json(ArchiveUnpacked),
    openapi_extra=_body(_TAR),
)
async def unpack(
    files: Files, request: Request, namespace: str, name: str, path: Path, parents: Parents = True
) -> JSONResponse:
    """Unpack a tar stream into a folder.

    Paths outside of it and devices are refused. Hard links to files below it are made. Owners, setuid and setgid are
    not kept.
    """
    return await files.upload(request, namespace, name, FileRequest("unpack", path, parents=parents))


def _octal(text: str | None) -> int | None:
    return None if text is None else int(text, 8)
