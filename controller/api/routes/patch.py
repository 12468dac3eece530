"""PATCH on one object, as a merge patch or a JSON patch."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse

from controller.api.common.parsing import Parsing, loads
from controller.api.common.paths import PREFIX
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.objects import serialize
from controller.service.objects.patch import PatchType
from controller.service.services import Services

_TYPES: dict[str, PatchType] = {"application/merge-patch+json": "merge", "application/json-patch+json": "json"}
DryRun = Annotated[bool, Query(alias="dryRun", description="check, admit and answer, but write nothing")]
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
    """The body is of no type that is taken here."""

    reason, code = "UnsupportedMediaType", 415


def router(kind: Kind, services: Services) -> APIRouter:
    """The route of one kind."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])
    name = f"/{kind.plural}/{{name}}"
    options: dict[str, Any] = {
        "operation_id": f"patch{kind.name}",
        "responses": {code: {} for code in (400, 404, 409, 415, 422, 503)},
        "openapi_extra": {"requestBody": _BODY},
    }

    async def answer(request: Request, namespace: str, name: str, dry_run: bool, agent: str) -> JSONResponse:
        type_, body = _type(request), await request.body()
        parsing: Parsing = request.app.state.parsing
        return await parsing.run(len(body), _patch, services, kind, (namespace, name), body, type_, dry_run, agent)

    if kind.namespaced:

        @routes.patch(f"/namespaces/{{namespace}}{name}", **options)
        async def in_namespace(
            request: Request, namespace: str, name: str, dry_run: DryRun = False, agent: Agent = ""
        ) -> JSONResponse:
            """Change parts of an object; with `metadata.resourceVersion` in the patch, only if nobody else did."""
            return await answer(request, namespace, name, dry_run, agent)

    else:

        @routes.patch(name, **options)
        async def of_host(request: Request, name: str, dry_run: DryRun = False, agent: Agent = "") -> JSONResponse:
            """Change parts of an object; with `metadata.resourceVersion` in the patch, only if nobody else did."""
            return await answer(request, "", name, dry_run, agent)

    return routes


def _patch(
    services: Services, kind: Kind, key: tuple[str, str], body: bytes, type_: PatchType, dry_run: bool, agent: str
) -> JSONResponse:
    found = services.patch.patch(kind, *key, _body(body), type_=type_, dry_run=dry_run, patched_by=agent)
    return JSONResponse(serialize.obj(found))


def _type(request: Request) -> PatchType:
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    found = _TYPES.get(given)
    if found is None:
        raise UnsupportedMediaType(f"`{given}` is no patch that is taken here; send {' or '.join(_TYPES)}")
    return found


def _body(data: bytes) -> Any:
    try:
        return loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise errors.BadRequest(f"the patch is not JSON: {error}") from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")
