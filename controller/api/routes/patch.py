"""PATCH on one object, as a merge patch or a JSON patch."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import LargeBodies
from controller.api.common.models import PREFIX
from controller.api.common.parsing import Parsing, loads
from controller.api.routes.kinds import collection
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.objects import serialize
from controller.service.objects.patch import PatchType
from controller.service.services import Services

_TYPES: dict[str, PatchType] = {"application/merge-patch+json": "merge", "application/json-patch+json": "json"}
DryRun = Annotated[bool, Query(alias="dryRun", description="validate, admit and answer, but write nothing")]
Agent = Annotated[str, Header(alias="user-agent")]
_OBJECT = {"schema": {"type": "object", "description": "RFC 7386"}}
_OPERATION = {
    "type": "object",
    "required": ["op", "path"],
    "properties": {
        "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
        "path": {"type": "string"},
        "from": {"type": "string"},
        "value": {},
    },
}
_OPERATIONS = {"schema": {"type": "array", "description": "RFC 6902", "items": _OPERATION}}
_BODY = {
    "required": True,
    "content": {"application/merge-patch+json": _OBJECT, "application/json-patch+json": _OPERATIONS},
}


class UnsupportedMediaType(errors.ServiceError):
    """The body has an unsupported content type."""

    reason, code = "UnsupportedMediaType", 415


class PatchHandlers:
    """Handlers of one kind's PATCH."""

    def __init__(self, kind: Kind, services: Services) -> None:
        self._kind, self._patches = kind, services.patch

    async def in_namespace(
        self,
        parsing: LargeBodies,
        request: Request,
        namespace: str,
        name: str,
        dry_run: DryRun = False,
        agent: Agent = "",
    ) -> JSONResponse:
        """Change parts of an object; with `metadata.resourceVersion` in the patch, only if it is unchanged since."""
        return await self._answer(parsing, request, namespace, name, dry_run, agent)

    async def of_host(
        self, parsing: LargeBodies, request: Request, name: str, dry_run: DryRun = False, agent: Agent = ""
    ) -> JSONResponse:
        """Change parts of an object; with `metadata.resourceVersion` in the patch, only if it is unchanged since."""
        return await self._answer(parsing, request, "", name, dry_run, agent)

    async def _answer(
        self, parsing: Parsing, request: Request, namespace: str, name: str, dry_run: bool, agent: str
    ) -> JSONResponse:
        type_, body = _type(request), await request.body()
        return await parsing.run(len(body), self._patch, (namespace, name), body, type_, dry_run, agent)

    def _patch(self, key: tuple[str, str], body: bytes, type_: PatchType, dry_run: bool, agent: str) -> JSONResponse:
        found = self._patches.patch(self._kind, *key, _body(body), type_=type_, dry_run=dry_run, patched_by=agent)
        return JSONResponse(serialize.obj(found))


def router(kind: Kind, services: Services) -> APIRouter:
    """Return the route of one kind."""
    routes, handlers = APIRouter(prefix=PREFIX, tags=[kind.name]), PatchHandlers(kind, services)
    path, _ = collection(kind)
    route = routes.patch(
        f"{path}/{{name}}",
        operation_id=f"patch{kind.name}",
        responses={
            200: {"model": models.object_model(kind)},
            **{code: {} for code in (400, 404, 409, 415, 422, 503)},
        },
        openapi_extra={"requestBody": _BODY},
    )
    route(handlers.in_namespace if kind.namespaced else handlers.of_host)
    return routes


def _type(request: Request) -> PatchType:
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    found = _TYPES.get(given)
    if found is None:
        raise UnsupportedMediaType(f"`{given}` is not a supported patch type; send {' or '.join(_TYPES)}")
    return found


def _body(data: bytes) -> Any:
    try:
        return loads(data, parse_constant=_refuse)
    except ValueError as error:
        raise errors.BadRequest(f"the patch is not JSON: {error}") from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
