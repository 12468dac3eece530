"""Archives of a box's files for clients on this host: the same as over HTTP (file_routes.py), as haul.py carries them.

It is the Python client's own way, and no part of /openapi.json: whoever is refused with 406 has HTTP.
"""

from collections.abc import Mapping

from fastapi import APIRouter, WebSocket
from fastapi.responses import JSONResponse

from controller.api.common import errors
from controller.api.common.paths import PREFIX
from controller.api.streams.bulk_copy import PROTOCOL, bring_in, bring_out
from controller.api.streams.local_caller import near
from controller.api.streams.transfer import Threads
from controller.kinds.registry import Kind
from controller.kinds.runtime.files import FileAsk
from controller.service.errors import BadRequest, ServiceError
from controller.service.objects import serialize
from controller.service.services import Services

_PATH_BYTES, _NAME_BYTES = 4095, 255
_NOT_SO = serialize.status("NotAcceptable", 406, "archives are not carried so here; ask for files/archive over HTTP")


def router(kind: Kind, services: Services) -> APIRouter:
    """The route of a kind whose objects have a container."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])
    files, threads = services.files, Threads(services.files)

    @routes.websocket(f"/namespaces/{{namespace}}/{kind.plural}/{{name}}/files/haul")
    async def haul(websocket: WebSocket, namespace: str, name: str) -> None:
        """Query: path; op (pack, or unpack); top and follow, as for HTTP."""
        link = near(websocket, PROTOCOL)
        if link is None:
            await websocket.send_denial_response(JSONResponse(_NOT_SO, 406))
            return
        try:
            ask = _asked(websocket.query_params)
            work = await threads.run(files.begin, kind, namespace, name, ask)
        except ServiceError as error:
            await websocket.send_denial_response(errors.answer(error))
            return
        try:
            if ask.op == "unpack":
                await bring_in(websocket, link, work, threads, files)
                return
            info = await threads.run(work.result)
            told = [(b"x-paddock-mode", info["mode"].encode()), (b"x-paddock-type", info["type"].encode())]
            await bring_out(websocket, link, work, threads, told)
        except ServiceError as error:
            await websocket.send_denial_response(errors.answer(error))
        except OSError:  # no more handles
            await websocket.send_denial_response(JSONResponse(_NOT_SO, 406))
        finally:
            await threads.close(work)

    return routes


def _asked(query: Mapping[str, str]) -> FileAsk:
    """Raises BadRequest."""
    op, path, top = query.get("op"), query.get("path", ""), query.get("top", ".")
    if op not in ("pack", "unpack"):
        raise BadRequest("op must be pack or unpack")
    for word, value, most in (("path", path, _PATH_BYTES), ("top", top, _NAME_BYTES)):
        if not 0 < len(value) <= most:
            raise BadRequest(f"{word} must have 1 to {most} characters")
    if op == "unpack":
        return FileAsk("unpack", path)
    return FileAsk("pack", path, top=top, follow=query.get("follow") == "true")
