"""PATCH on one object, as a merge patch or a JSON patch."""

from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import LargeBodies, UseCases
from controller.api.common.models import PREFIX
from controller.api.common.queries import DryRun
from controller.api.routes.objects.kinds import collection
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.listing import serialize
from controller.service.objects.patch import PatchType
from controller.service.parsing import Parsing, loads
from controller.service.services import Services

_TYPES: dict[str, PatchType] = {"application/merge-patch+json": "merge", "application/json-patch+json": "json"}
_INSTEAD = {
    "application/apply-patch+yaml": "server-side apply is not supported, as fields have no managers here; leave "
    "--server-side out (kubectl apply --validate=false), or use `paddock apply`",
    "application/strategic-merge-patch+json": "strategic merge patches are not supported; write kubectl patch "
    "--type=merge",
}
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

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    async def in_namespace(
        self,
        services: UseCases,
        parsing: LargeBodies,
        request: Request,
        namespace: str,
        name: str,
        dry_run: DryRun = False,
        agent: Agent = "",
    ) -> JSONResponse:
        """Change parts of an object; with `metadata.resourceVersion` in the patch, only if it is unchanged since."""
        return await self._answer(services, parsing, request, key=(namespace, name), dry_run=dry_run, agent=agent)

    async def of_host(
        self,
        services: UseCases,
        parsing: LargeBodies,
        request: Request,
        name: str,
        dry_run: DryRun = False,
        agent: Agent = "",
    ) -> JSONResponse:
        """Change parts of an object; with `metadata.resourceVersion` in the patch, only if it is unchanged since."""
        return await self._answer(services, parsing, request, key=("", name), dry_run=dry_run, agent=agent)

    async def _answer(
        self,
        services: Services,
        parsing: Parsing,
        request: Request,
        key: tuple[str, str],
        dry_run: bool,
        agent: str,
    ) -> JSONResponse:
        type_, body = _type(request), await request.body()

        def patched() -> JSONResponse:
            patch = _body(body)
            patched_object = services.patch.patch(
                self._kind, *key, patch, type_=type_, dry_run=dry_run, patched_by=agent
            )
            if self._kind.read_only and not dry_run:
                patched_object = services.objects.get(self._kind, *key)  # with its computed status
            return JSONResponse(serialize.obj(patched_object))

        return await parsing.run(len(body), patched)


@cache
def router(kind: Kind) -> APIRouter:
    """Return the route of one kind, for any application."""
    routes, handlers = APIRouter(prefix=PREFIX, tags=[kind.name]), PatchHandlers(kind)
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
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    patch_type = _TYPES.get(media_type)
    if patch_type is None:
        if advice := _INSTEAD.get(media_type):
            raise UnsupportedMediaType(advice)
        raise UnsupportedMediaType(f"`{media_type}` is not a supported patch type; send {' or '.join(_TYPES)}")
    return patch_type


def _body(data: bytes) -> Any:
    try:
        return loads(data, parse_constant=_refuse)
    except ValueError as error:
        raise errors.BadRequest(f"the patch is not JSON: {error}") from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
