"""docker.compose.*: a Compose file as a set of sandboxes."""

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from controller.documents.compose.compose import is_named, name_of_services
from controller.documents.compose.mounts import is_name
from controller.kinds.access.access import AccessRequest
from controller.mcp.arguments import Arguments, Result
from controller.mcp.sandboxes import NO_IMAGE, Namespace, image_names, leaving
from controller.mcp.tool import WAIT_SECONDS, Call, Tool
from controller.mcp.tools.objects import AppliedObject, Wait, applied_objects
from controller.service.access import access
from controller.service.errors import NotFound
from controller.service.objects.compose import FILE

_WRITTEN_BY = "mcp"
File = Annotated[
    str | dict[str, Any], Field(description="the Compose file: its YAML text, or the same as an object; not a path")
]
Variables = Annotated[dict[str, str], Field(max_length=1000, description="the only values of ${X} in the file")]
ProjectName = Annotated[str, Field(max_length=253, description="default: the file's `name:`, else one of its services")]


class UpOptions(Arguments):
    project: ProjectName = ""
    variables: Variables = {}
    dryRun: Annotated[bool, Field(description="check everything, and change nothing")] = False
    removeOrphans: Annotated[bool, Field(description="delete sandboxes of services that the file lacks")] = False


class UpArguments(UpOptions):
    file: File
    options: Annotated[UpOptions | None, Field(description="the same options as an object")] = None
    namespace: Namespace = ""
    waitSeconds: Wait = WAIT_SECONDS


class DownArguments(Arguments):
    file: Annotated[str | dict[str, Any], Field(description="the Compose file as for up, or the project's name")] = ""
    project: ProjectName = ""
    variables: Variables = {}
    namespace: Namespace = ""
    waitSeconds: Wait = WAIT_SECONDS


class Up(Result):
    """The project's sandboxes, in order. `notes` are differences from Compose."""

    project: str
    items: list[AppliedObject]
    notes: list[str]


class Down(Result):
    """Sandboxes that were deleted; `gone` once their containers are removed. Volumes stay."""

    names: list[str]
    gone: bool


async def up(call: Call, asked: UpArguments) -> Up:
    access.require(AccessRequest("apply"), call.services.registry)
    options: UpOptions = asked.options or asked
    text = _text(asked.file)
    run = partial(
        call.services.compose.up,
        namespace=asked.namespace or call.namespace,
        variables=options.variables,
        dry_run=options.dryRun,
        remove_orphans=options.removeOrphans,
        applied_by=_WRITTEN_BY,
    )
    found = await call.parse(lambda: run(text, project=options.project or _made_name(text)))
    items = await applied_objects(call, found.applied, 0.0 if options.dryRun else asked.waitSeconds)
    imageless = [f"{each.name}: {each.message}" for each in items if each.status in NO_IMAGE]
    if imageless:
        here = ", ".join(await image_names(call)) or "none"
        advice = f"change the file and call docker.compose.up again, or docker.compose.down(project: {found.project})"
        raise NotFound("\n".join((*imageless, f"images here: {here}", advice)))
    return Up(project=found.project, items=items, notes=[str(each) for each in found.notes])


async def down(call: Call, asked: DownArguments) -> Down:
    text = _text(asked.file)
    run = partial(
        call.services.compose.down,
        namespace=asked.namespace or call.namespace,
        variables=asked.variables,
        deleted_by=_WRITTEN_BY,
    )
    project = asked.project or (text if is_name(text) else "")
    deleted = await call.parse(lambda: run("" if project else text, project=project or _made_name(text)))
    deadline, gone = time.monotonic() + asked.waitSeconds, True
    for each in deleted:
        left = max(0.0, deadline - time.monotonic())
        found = await call.wait(each.namespace, each.name, leaving, left)
        gone = gone and (found is None or found.uid != each.uid)
    return Down(names=[each.name for each in deleted], gone=gone)


def _made_name(text: str) -> str:
    """Return the name of a project whose file has none: that of its services; "" if the file has one."""
    return "" if is_named(FILE, text) else name_of_services(FILE, text)


def _text(file: str | Mapping[str, Any]) -> str:
    return file if isinstance(file, str) else json.dumps(file)


TOOLS = (
    Tool(
        name="docker.compose.up",
        title="Start a Compose project",
        description="Run the services of a Compose file in sandboxes, as one set, and wait until they are ready. Of a"
        " strict subset: privileged services, host networks, capabilities and sockets are refused, with"
        " line and column and what to write instead.",
        arguments=UpArguments,
        result=Up,
        run=up,
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="docker.compose.down",
        title="Remove a Compose project",
        description="Delete the sandboxes of a Compose project, given by its name (project) or its file. Volumes stay.",
        arguments=DownArguments,
        result=Down,
        run=down,
        destructive=True,
        idempotent=True,
    ),
)
