"""POST apply: files of documents, all or nothing."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from controller.api.common import models
from controller.api.common.apply_set_fields import SetFields
from controller.api.common.parsing import BoundedRoute, Parsing
from controller.api.common.paths import PREFIX
from controller.service import errors
from controller.service.objects import serialize
from controller.service.objects.apply import Source
from controller.service.services import Services
from controller.version import API_VERSION


class SpecFile(BaseModel):
    """A file as it was written; its name is for messages."""

    file: Annotated[str, Field(max_length=4096)] = "request"
    text: str


class ApplyRequest(SetFields):
    """What to apply. `namespace` is where documents go that name none; one that names another is refused."""

    documents: Annotated[list[SpecFile], Field(max_length=10000)]
    namespace: str | None = None
    dryRun: bool = False


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": models.ApplyResult},
    **models.failures(errors.BadRequest, errors.Conflict, errors.Invalid, errors.ServiceUnavailable),
}


def router(services: Services) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix=PREFIX, tags=["apply"], route_class=BoundedRoute)

    @routes.post("/apply", operation_id="apply", responses=_ANSWERS)
    async def apply(
        request: Request, asked: ApplyRequest, user_agent: Annotated[str, Header(include_in_schema=False)] = ""
    ) -> JSONResponse:
        """Create or change the objects of all these documents in one transaction, or say all that is wrong."""
        parsing: Parsing = request.app.state.parsing
        return await parsing.go_on(len(await request.body()), answer, asked, user_agent)

    def answer(asked: ApplyRequest, user_agent: str) -> JSONResponse:
        applied = services.apply.apply(
            [Source(each.file, each.text) for each in asked.documents],
            namespace=asked.namespace or None,
            dry_run=asked.dryRun,
            as_set=asked.as_set,
            applied_by=user_agent,
        )
        items = [serialize.applied(each.kind, each.obj, each.result) for each in applied]
        return JSONResponse({"apiVersion": API_VERSION, "kind": "ApplyResult", "items": items})

    return routes
