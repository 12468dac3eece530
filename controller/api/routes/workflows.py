"""Workflow runs: logs, transcripts and artifacts; and what uses them: projects, and the bridge for agents."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from anyio import from_thread
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.parsing import BoundedRoute
from controller.api.fleet.forwarding import Forwarding
from controller.kinds.access.access import AccessRequest
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import TemplateRef
from controller.kinds.volume import DEFAULT_VOLUME
from controller.service import errors
from controller.service.listing import serialize
from controller.service.services import Services
from controller.service.workflow.bridge import BridgeRequest
from controller.service.workflow.projects import DEFAULT_IMAGE, ProjectDefaults
from controller.version import API_VERSION

_READ = models.failures(errors.BadRequest, errors.NotFound, errors.Conflict, errors.ServiceUnavailable)
_USE = models.failures(
    errors.BadRequest,
    errors.NotFound,
    errors.Conflict,
    errors.Invalid,
    errors.TooManyRequests,
    errors.ServiceUnavailable,
)
_OBJECT: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Sandbox"}}},
        "description": "the sandbox",
    }
}
_PIECE_BYTES = 1 << 18
_RUN = "/namespaces/{namespace}/workflowruns/{name}"
_SANDBOX = "/namespaces/{namespace}/sandboxes/{name}"
_Word = Annotated[str, Field(min_length=1, max_length=256)]
Stage = Annotated[str, Query(max_length=52, description="name of the stage")]
Attempt = Annotated[int | None, Query(ge=1, le=100, description="number of the attempt; default: the last one")]


class ArtifactFile(models.Shape):
    """A file of an artifact."""

    path: str
    size: int
    sha256: str


class Artifact(models.Shape):
    """An artifact of a run: a tar archive of `size` bytes, which are more than those of its files."""

    name: str
    stage: str
    size: int
    files: list[ArtifactFile]


class ArtifactList(models.Shape):
    """The artifacts of a run by name."""

    apiVersion: models.Version
    kind: Literal["ArtifactList"]
    items: list[Artifact]


class Transcript(models.Shape):
    """The messages of an agent stage, in order."""

    apiVersion: models.Version
    kind: Literal["Transcript"]
    items: list[dict[str, Any]]


class ProjectRequest(BaseModel):
    """Parts of a project's new sandbox: its volumes survive closing. The image is for one without a template."""

    model_config = ConfigDict(extra="forbid")

    image: Annotated[str, Field(min_length=1, max_length=512)] = DEFAULT_IMAGE
    folder: Annotated[str, Field(max_length=4096, description="folder of the host for the sources")] = ""
    size: Annotated[str, Field(min_length=1, max_length=32, description="size of each volume")] = DEFAULT_VOLUME


class OpenRequest(BaseModel):
    """A sandbox to open: started if it is suspended, created from the template if it is absent; never changed."""

    model_config = ConfigDict(extra="forbid")

    templateRef: TemplateRef | None = None
    project: ProjectRequest | None = None
    waitSeconds: Annotated[float, Field(ge=0, le=600)] = 60


class RunRequest(BaseModel):
    """One stage in the sandbox: a command, or a model that works on `context` with `tools`."""

    model_config = ConfigDict(extra="forbid")

    open: OpenRequest | None = None
    command: Annotated[list[str] | None, Field(min_length=1, max_length=1024)] = None
    context: Annotated[
        str | dict[str, Any],
        Field(max_length=65536, description="instructions; an object becomes its JSON"),
    ] = ""
    tools: Annotated[list[_Word], Field(max_length=32, validation_alias=AliasChoices("tools", "requiredTools"))] = []
    provider: Annotated[str, Field(max_length=256)] = ""
    model: Annotated[str, Field(max_length=256)] = ""
    copyOut: Annotated[str, Field(max_length=4096, description="folder to copy out as the artifact `files`")] = ""
    timeoutSeconds: Annotated[int, Field(ge=1, le=86_400)] = 600
    projectId: Annotated[str, Field(max_length=256, description="the sandbox again, for callers that name it")] = ""
    agentType: Annotated[str, Field(max_length=256, description="of no effect: `context` says what to do")] = ""

    @model_validator(mode="before")
    @classmethod
    def _split_provider(cls, document: Any) -> Any:
        """Accept `provider: anthropic/claude-x` for a provider and its model."""
        if not isinstance(document, Mapping) or not isinstance(document.get("provider"), str):
            return document
        provider, slash, model = document["provider"].partition("/")
        return {**document, "provider": provider, "model": document.get("model") or model} if slash else document

    @property
    def instructions(self) -> str:
        """The context as text for the model."""
        if isinstance(self.context, str):
            return self.context
        return json.dumps(self.context, ensure_ascii=False, indent=2) if self.context else ""


class RunMetrics(models.Shape):
    """Resources that the run used. Null where they were not measured, as after a restart of the daemon.

    `cpuSeconds` are those of the whole sandbox meanwhile; `memoryPeakBytes` is its highest memory since its start.
    """

    durationSeconds: float
    cpuSeconds: float | None = None
    memoryPeakBytes: int | None = None
    promptTokens: int
    completionTokens: int
    toolCalls: int


class RunAnswer(models.Shape):
    """The result of the one stage. `run` names the WorkflowRun that did it."""

    success: bool
    output: str
    files: list[ArtifactFile]
    metrics: RunMetrics
    error: str | None
    run: str


routes = APIRouter(prefix=PREFIX, tags=["WorkflowRun"], route_class=BoundedRoute)


@routes.get(_RUN + "/logs", operation_id="readWorkflowRunLogs", response_class=PlainTextResponse, responses=_READ)
def logs(
    services: UseCases,
    namespace: str,
    name: str,
    stage: Stage,
    attempt: Attempt = None,
    offset: Annotated[int, Query(ge=0, description="bytes to leave out at the beginning")] = 0,
) -> Response:
    """Output of a stage so far; of long output the head and the tail. Of an agent, its transcript as text."""
    return PlainTextResponse(services.runs.log(namespace, name, stage, attempt)[offset:])


@routes.get(
    _RUN + "/transcript",
    operation_id="readWorkflowRunTranscript",
    responses={200: {"model": Transcript}, **_READ},
)
def transcript(services: UseCases, namespace: str, name: str, stage: Stage, attempt: Attempt = None) -> JSONResponse:
    """The messages of an agent stage: instructions, answers with their calls and tokens, results of tools."""
    items = [dict(message) for message in services.runs.transcript(namespace, name, stage, attempt)]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "Transcript", "items": items})


@routes.get(
    _RUN + "/artifacts", operation_id="listWorkflowRunArtifacts", responses={200: {"model": ArtifactList}, **_READ}
)
def artifacts(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """The artifacts of a run, with their files."""
    items = [
        {
            "name": artifact.name,
            "stage": artifact.stage,
            "size": artifact.size,
            "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in artifact.files],
        }
        for artifact in services.runs.artifacts(namespace, name)
    ]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "ArtifactList", "items": items})


@routes.get(
    _RUN + "/artifacts/{artifact}",
    operation_id="downloadWorkflowRunArtifact",
    response_class=Response,
    responses={
        200: {
            "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
            "description": "a tar archive",
        },
        **_READ,
    },
)
def download(
    services: UseCases, namespace: str, name: str, artifact: Annotated[str, Path(max_length=52)]
) -> StreamingResponse:
    """An artifact as a tar archive of files and folders, without links."""
    file = services.runs.open_artifact(namespace, name, artifact)

    def pieces() -> Iterator[bytes]:
        with file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    return StreamingResponse(pieces(), media_type="application/x-tar")


@routes.post(_SANDBOX + "/open", operation_id="openSandbox", tags=["Sandbox"], responses={**_OBJECT, **_USE})
def open_(services: UseCases, namespace: str, name: str, body: OpenRequest) -> JSONResponse:
    """Open a project: its sandbox is created from the template if it is absent, started, and waited for.

    Answers once it is Ready. An existing sandbox is never changed, only started. With `project`, a new one has a volume
    for its sources that survives closing, stops when idle, and needs no template.
    """
    return JSONResponse(serialize.obj(_open(services, namespace, name, body)))


@routes.post(_SANDBOX + "/close", operation_id="closeSandbox", tags=["Sandbox"], responses={**_OBJECT, **_READ})
def close(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Close a project: its sandbox is suspended, unless its lifecycle says `keepRunning`. Its volumes stay."""
    return JSONResponse(serialize.obj(services.projects.close(namespace, name)))


@routes.post(
    _SANDBOX + "/run",
    operation_id="runInSandbox",
    tags=["Sandbox"],
    responses={200: {"model": RunAnswer}, **_USE},
)
def run(
    request: Request,
    services: UseCases,
    namespace: str,
    name: str,
    body: RunRequest,
    key: Annotated[str, Header(alias="Idempotency-Key", max_length=255)] = "",
) -> JSONResponse:
    """Run one command, or an agent, in the sandbox, and answer with the result.

    With an Idempotency-Key the same request joins the run, or gets its answer again; another body is refused (422).
    Disconnecting does not end the run.
    """
    if body.projectId not in ("", name):
        raise errors.BadRequest(f"projectId: is `{body.projectId}`, and the path names `{name}`; make them agree")
    if body.open is not None:
        _open(services, namespace, name, body.open)
        _go_to_its_host(request, AccessRequest("use", SANDBOX.name, namespace, name, "run"))
    bridge_request = BridgeRequest(
        command=tuple(body.command or ()),
        context=body.instructions,
        tools=tuple(body.tools),
        provider=body.provider,
        model=body.model,
        copy_out=body.copyOut,
        timeout_seconds=body.timeoutSeconds,
    )
    return JSONResponse(services.bridge.run(namespace, name, bridge_request, key))


def _go_to_its_host(request: Request, access_request: AccessRequest) -> None:
    """Raise Elsewhere if the sandbox, which was just created, has another host."""
    forwarding: Forwarding | None = request.app.state.forwarding
    if forwarding is not None and (elsewhere := from_thread.run(forwarding.find, request, access_request)) is not None:
        raise elsewhere


def _open(services: Services, namespace: str, name: str, body: OpenRequest) -> StoredObject:
    template = body.templateRef.name if body.templateRef else ""
    defaults = ProjectDefaults(body.project.image, body.project.folder, body.project.size) if body.project else None
    return services.projects.open(namespace, name, template, body.waitSeconds, defaults)
