"""The files of a box over HTTP: read, write, list, stat, make and remove, and whole trees as tar streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from controller.api.common import models
from controller.api.common.file_models import ArchiveUnpacked, FileInfo, FileList, FileRemoved
from controller.api.common.paths import PREFIX
from controller.api.streams.transfer import Threads, WorkResponse, take_in
from controller.archive.tar import PERMISSIONS
from controller.kinds.registry import Kind
from controller.kinds.runtime.files import FileAsk
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
from controller.service.sandbox.files import Work
from controller.service.services import Services

_FAILURES = models.failures(
    BadRequest, Forbidden, NotFound, Conflict, TooLarge, TooManyRequests, ServiceUnavailable, NoSpace
)
_BYTES, _TAR = "application/octet-stream", "application/x-tar"
_BINARY = {"schema": {"type": "string", "format": "binary"}}

Path = Annotated[
    str, Query(min_length=1, max_length=4095, description="a path in the box; a relative one is taken from `/`")
]
Top = Annotated[
    str, Query(min_length=1, max_length=255, description="what it is called in the archive; `.`: only what is in it")
]
Mode = Annotated[
    str | None, Query(pattern="^0?[0-7]{3}$", description="permission bits in octal; without it, as the file there has")
]


def router(kind: Kind, services: Services) -> APIRouter:
    """The routes of a kind whose objects have a container."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])
    one, files, threads = (
        f"/namespaces/{{namespace}}/{kind.plural}/{{name}}/files",
        services.files,
        Threads(services.files),
    )

    @asynccontextmanager
    async def begun(namespace: str, name: str, ask: FileAsk) -> AsyncIterator[Work]:
        work = await threads.run(files.begin, kind, namespace, name, ask)
        try:
            yield work
        finally:
            await threads.close(work)

    async def answer(namespace: str, name: str, ask: FileAsk) -> JSONResponse:
        async with begun(namespace, name, ask) as work:
            return JSONResponse(await threads.run(work.result))

    async def output(namespace: str, name: str, ask: FileAsk) -> Response:
        work = await threads.run(files.begin, kind, namespace, name, ask)
        try:
            info = await threads.run(work.result)
        except BaseException:
            await threads.close(work)
            raise
        sized = {"content-length": str(info["size"])} if ask.op == "read" else {}
        return WorkResponse(
            work,
            threads,
            media_type=_BYTES if ask.op == "read" else _TAR,
            headers={
                "x-paddock-mode": f"{int(info['mode'], 8) & PERMISSIONS:04o}",
                "x-paddock-type": info["type"],
                **sized,
            },
        )

    async def into(request: Request, namespace: str, name: str, ask: FileAsk) -> JSONResponse:
        announced = request.headers.get("content-length", "0")
        files.refuse_larger(int(announced) if announced.isdigit() else 0)
        async with begun(namespace, name, ask) as work:
            return JSONResponse(await take_in(request, work, threads, files))

    @routes.get(one, operation_id=f"read{kind.name}File", responses=_out(_BYTES), response_class=Response)
    async def read(namespace: str, name: str, path: Path) -> Response:
        """The bytes of a regular file. Its mode is in the header X-Paddock-Mode."""
        return await output(namespace, name, FileAsk("read", path))

    @routes.put(one, operation_id=f"write{kind.name}File", responses=_json(FileInfo), openapi_extra=_body(_BYTES))
    async def write(request: Request, namespace: str, name: str, path: Path, mode: Mode = None) -> JSONResponse:
        """Make or replace a regular file, in one step once all of the body has come. A symlink there is replaced."""
        return await into(request, namespace, name, FileAsk("write", path, mode=_octal(mode)))

    @routes.delete(one, operation_id=f"remove{kind.name}File", responses=_json(FileRemoved))
    async def remove(
        namespace: str,
        name: str,
        path: Path,
        recursive: Annotated[bool, Query(description="a folder with all that is in it")] = False,
    ) -> JSONResponse:
        """Remove a file, a symlink or a folder."""
        return await answer(namespace, name, FileAsk("remove", path, recursive=recursive))

    @routes.get(f"{one}/stat", operation_id=f"stat{kind.name}File", responses=_json(FileInfo))
    async def stat(
        namespace: str,
        name: str,
        path: Path,
        follow: Annotated[bool, Query(description="follow a symlink that the path ends in")] = True,
    ) -> JSONResponse:
        """What is there."""
        return await answer(namespace, name, FileAsk("stat", path, follow=follow))

    @routes.get(f"{one}/list", operation_id=f"list{kind.name}Files", responses=_json(FileList))
    async def list_(
        namespace: str,
        name: str,
        path: Path,
        limit: Annotated[int, Query(ge=1, le=10_000, description="how many entries at most")] = 1000,
    ) -> JSONResponse:
        """The entries of a folder."""
        return await answer(namespace, name, FileAsk("list", path, limit=limit))

    @routes.post(f"{one}/folder", operation_id=f"make{kind.name}Folder", responses=_json(FileInfo))
    async def mkdir(
        namespace: str,
        name: str,
        path: Path,
        parents: Annotated[bool, Query(description="with the folders above it; one that is there is no error")] = False,
    ) -> JSONResponse:
        """Make a folder (0755)."""
        return await answer(namespace, name, FileAsk("mkdir", path, parents=parents, mode=0o755))

    @routes.get(f"{one}/archive", operation_id=f"read{kind.name}Archive", responses=_out(_TAR), response_class=Response)
    async def pack(
        namespace: str,
        name: str,
        path: Path,
        top: Annotated[
            str,
            Query(
                min_length=1, max_length=255, description="what it is called in the archive; `.`: only what is in it"
            ),
        ] = ".",
        follow: Annotated[bool, Query(description="follow a symlink to a file that the path ends in")] = False,
    ) -> Response:
        """A file, symlink or tree as a tar stream. What can't be in it is told in it (PADDOCK.skipped, pax headers).

        Its entries have permission bits (no setuid, setgid or sticky bit) and the owner and group 65534 (nobody).
        """
        return await output(namespace, name, FileAsk("pack", path, top=top, follow=follow))

    @routes.put(
        f"{one}/archive",
        operation_id=f"write{kind.name}Archive",
        responses=_json(ArchiveUnpacked),
        openapi_extra=_body(_TAR),
    )
    async def unpack(request: Request, namespace: str, name: str, path: Path) -> JSONResponse:
        """Unpack a tar stream below a folder that is there. Names that lead out of it, hard links and devices are
        refused; owners, setuid and setgid are not kept."""
        return await into(request, namespace, name, FileAsk("unpack", path))

    return routes


def _octal(text: str | None) -> int | None:
    return None if text is None else int(text, 8)


def _json(model: Any) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **_FAILURES}


def _out(media_type: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media_type: _BINARY}, "description": "the data"}, **_FAILURES}


def _body(media_type: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: _BINARY}}}
