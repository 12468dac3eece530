"""POST apply: files of documents, all or nothing."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from controller.api.common import models
from controller.api.common.dependencies import LargeBodies, UseCases
from controller.api.common.models import PREFIX
from controller.api.common.parsing import BoundedRoute
from controller.service import errors
from controller.service.listing import serialize
from controller.service.objects.apply import Source
from controller.service.objects.apply_set import ApplySet
from controller.service.services import Services
from controller.version import API_VERSION


class ComposeFields(BaseModel):
    """Options of a Compose file. `project` replaces its `name:`; `variables` are the only values of `${X}`.

    `files` are texts of files beside it, by their paths as it writes them; `overrides` are merged into it.
    `imageVolumes` are the VOLUMEs of images, by the names in the file: a service gets volumes there. Those of images
    on the daemon's host are known without.
    """

    model_config = ConfigDict(extra="forbid")

    project: Annotated[str, Field(max_length=253)] = ""
    variables: Annotated[dict[str, str], Field(max_length=1000)] = {}
    folder: Annotated[
        str, Field(max_length=4096, pattern="^(/.*)?$", description="where relative binds begin on the daemon's host")
    ] = ""
    files: Annotated[dict[str, str], Field(max_length=1000)] = {}
    overrides: Annotated[list[tuple[str, str]], Field(max_length=100)] = []
    profiles: Annotated[list[str], Field(max_length=1000)] = []
    services: Annotated[list[str], Field(max_length=1000, description="these and those that they need; none: all")] = []
    imageVolumes: Annotated[
        dict[str, Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=100)]],
        Field(max_length=1000),
    ] = {}


class SpecFile(BaseModel):
    """The text of a file; its name is for messages. With `compose` it is a Compose file."""

    file: Annotated[str, Field(max_length=4096)] = "request"
    text: str
    compose: ComposeFields | None = None

    def source(self) -> Source:
        """Return the file as the service's type."""
        compose = self.compose
        if compose is None:
            return Source(self.file, self.text)
        from controller.documents.compose.compose import Project  # most daemons are never sent one

        project = Project(
            compose.project,
            compose.variables,
            compose.folder,
            compose.files,
            tuple(compose.overrides),
            frozenset(compose.profiles),
            frozenset(compose.services),
            compose.imageVolumes,
        )
        return Source(self.file, self.text, project)


class SetFields(BaseModel):
    """Apply-set fields of a request. Without `applySet` the other fields must be off."""

    model_config = ConfigDict(extra="forbid")

    applySet: Annotated[str | None, Field(max_length=253, description="the apply set that the objects join")] = None
    prune: Annotated[bool, Field(description="delete members of the set that are not in the documents")] = False
    takeOver: Annotated[bool, Field(description="take over objects that belong to another set")] = False
    allowEmpty: Annotated[bool, Field(description="allow pruning all members when there are no documents")] = False

    @property
    def as_set(self) -> ApplySet:
        """The fields as the service's type."""
        return ApplySet(self.applySet or "", prune=self.prune, take_over=self.takeOver, allow_empty=self.allowEmpty)


class ApplyRequest(SetFields):
    """Documents to apply. `namespace` is for documents that name none; one that names another is refused."""

    documents: Annotated[list[SpecFile], Field(max_length=10000)]
    namespace: str | None = None
    dryRun: bool = False


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": models.ApplyResult},
    **models.failures(errors.BadRequest, errors.Conflict, errors.Invalid, errors.ServiceUnavailable),
}


routes = APIRouter(prefix=PREFIX, tags=["apply"], route_class=BoundedRoute)


@routes.post("/apply", operation_id="apply", responses=_ANSWERS)
async def apply(
    services: UseCases,
    parsing: LargeBodies,
    request: Request,
    body: ApplyRequest,
    user_agent: Annotated[str, Header(include_in_schema=False)] = "",
) -> JSONResponse:
    """Create or change the objects of all documents in one transaction, or report every error."""
    return await parsing.resume(len(await request.body()), _answer, services, body, user_agent)


def _answer(services: Services, body: ApplyRequest, user_agent: str) -> JSONResponse:
    applied = services.apply.apply(
        [document.source() for document in body.documents],
        namespace=body.namespace or None,
        dry_run=body.dryRun,
        as_set=body.as_set,
        applied_by=user_agent,
    )
    items = [
        serialize.applied(applied_object.kind, applied_object.obj, applied_object.result) for applied_object in applied
    ]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "ApplyResult", "items": items})
