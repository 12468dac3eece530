"""docker.compose.*: a Compose file as a set of sandboxes."""

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from controller.kinds.access.access import AccessRequest
from controller.mcp.arguments import Arguments, Result
from controller.mcp.sandboxes import Namespace, leaving
from controller.mcp.tool import WAIT_SECONDS, Call, Tool
from controller.mcp.tools.objects import AppliedObject, Wait, applied_objects
from controller.service.access import access

_WRITTEN_BY = "mcp"
File = Annotated[
    str | dict[str, Any], Field(description="the Compose file: its YAML text, or the same as an object; not a path")
]
Variables = Annotated[dict[str, str], Field(max_length=1000, description="the only values of ${X} in the file")]
ProjectName = Annotated[str, Field(max_length=253, description="replaces the file's `name:`")]


class UpOptions(Arguments):
    project: ProjectName = ""
    variables: Variables = {}
    dryRun: Annotated[bool, Field(description="check everything, and change nothing")] = False
    removeOrphans: Annotated[bool, Field(description="delete sandboxes of services that the file lacks")] = False


class UpArguments(Arguments):
    file: File
    options: UpOptions = UpOptions()
    namespace: Namespace = ""
    waitSeconds: Wait = WAIT_SECONDS


class DownArguments(Arguments):
    file: File = ""
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
    run = partial(
        call.services.compose.up,
        project=asked.options.project,
        namespace=asked.namespace or call.namespace,
        variables=asked.options.variables,
        dry_run=asked.options.dryRun,
        remove_orphans=asked.options.removeOrphans,
        applied_by=_WRITTEN_BY,
    )
    found = await call.parse(lambda: run(_text(asked.file)))
    items = await applied_objects(call, found.applied, 0.0 if asked.options.dryRun else asked.waitSeconds)
    return Up(project=found.project, items=items, notes=[str(each) for each in found.notes])


async def down(call: Call, asked: DownArguments) -> Down:
    run = partial(
        call.services.compose.down,
        project=asked.project,
        namespace=asked.namespace or call.namespace,
        variables=asked.variables,
        deleted_by=_WRITTEN_BY,
    )
    deleted = await call.parse(lambda: run(_text(asked.file)))
    deadline, gone = time.monotonic() + asked.waitSeconds, True
    for each in deleted:
        left = max(0.0, deadline - time.monotonic())
        found = await call.wait(each.namespace, each.name, leaving, left)
        gone = gone and (found is None or found.uid != each.uid)
    return Down(names=[each.name for each in deleted], gone=gone)


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
        description="Delete the sandboxes of a Compose project, given by its name or its file. Volumes stay.",
        arguments=DownArguments,
        result=Down,
        run=down,
        destructive=True,
        idempotent=True,
    ),
)
