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
from controller.mcp.sandboxes import NO_IMAGE, Namespace, deleting, image_names
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
Files = Annotated[
    dict[str, str],
    Field(max_length=1000, description="texts of files that it names (env_file, configs, binds), by their paths there"),
]
ProjectName = Annotated[str, Field(max_length=253, description="default: the file's `name:`, else one of its services")]


class UpOptions(Arguments):
    project: ProjectName = ""
    variables: Variables = {}
    files: Files = {}
    profiles: Annotated[list[str], Field(max_length=1000, description="profiles whose services are started, too")] = []
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


async def up(call: Call, arguments: UpArguments) -> Up:
    access.require(AccessRequest("apply"), call.services.registry)
    options: UpOptions = arguments.options or arguments
    text = _text(arguments.file)
    run = partial(
        call.services.compose.up,
        namespace=arguments.namespace or call.namespace,
        variables=options.variables,
        files=options.files,
        profiles=options.profiles,
        dry_run=options.dryRun,
        remove_orphans=options.removeOrphans,
        applied_by=_WRITTEN_BY,
    )
    composed = await call.parse(lambda: run(text, project=options.project or _made_name(text)))
    items = await applied_objects(call, composed.applied, 0.0 if options.dryRun else arguments.waitSeconds)
    imageless = [
        f"{applied_object.name}: {applied_object.message}"
        for applied_object in items
        if applied_object.status in NO_IMAGE
    ]
    if imageless:
        image_list = ", ".join(await image_names(call)) or "none"
        advice = (
            f"change the file and call docker.compose.up again, or docker.compose.down(project: {composed.project})"
        )
        raise NotFound("\n".join((*imageless, f"images here: {image_list}", advice)))
    return Up(project=composed.project, items=items, notes=[str(note) for note in composed.notes])


async def down(call: Call, arguments: DownArguments) -> Down:
    text = _text(arguments.file)
    run = partial(
        call.services.compose.down,
        namespace=arguments.namespace or call.namespace,
        variables=arguments.variables,
        deleted_by=_WRITTEN_BY,
    )
    project = arguments.project or (text if is_name(text) else "")
    deleted = await call.parse(lambda: run("" if project else text, project=project or _made_name(text)))
    deadline, is_gone = time.monotonic() + arguments.waitSeconds, True
    for sandbox in deleted:
        seconds_left = max(0.0, deadline - time.monotonic())
        current = await call.wait(sandbox.namespace, sandbox.name, deleting, seconds_left)
        is_gone = is_gone and (current is None or current.uid != sandbox.uid)
    return Down(names=[sandbox.name for sandbox in deleted], gone=is_gone)


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
