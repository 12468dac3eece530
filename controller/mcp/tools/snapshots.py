"""sandbox.snapshot, sandbox.fork and sandbox.rollback: files of a sandbox at one instant, and what begins from them."""

import secrets
from typing import Annotated

from pydantic import Field

from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandboxsnapshot import KIND as SNAPSHOT
from controller.mcp.arguments import Result
from controller.mcp.sandboxes import ContainerState, SandboxArguments, find, state_of
from controller.mcp.tool import Call, Tool
from controller.service.sandbox.snapshots import COUNT_MAX

_WRITTEN_BY = "mcp"


class SnapshotArguments(SandboxArguments):
    snapshot: Annotated[str, Field(max_length=52, description="name of the snapshot; empty: one is made up")] = ""


class ForkArguments(SandboxArguments):
    count: Annotated[int, Field(ge=1, le=COUNT_MAX, description="number of new sandboxes")] = 1
    namePrefix: Annotated[str, Field(max_length=40, description="beginning of their names")] = ""
    snapshot: Annotated[str, Field(max_length=52, description="snapshot to begin from; empty: one taken now")] = ""
    allowPartial: Annotated[bool, Field(description="create as many as the quotas have room for")] = False


class RollbackArguments(SandboxArguments):
    snapshot: Annotated[str, Field(min_length=1, max_length=52, description="snapshot to return to")]
    backup: Annotated[bool, Field(description="take a snapshot of the present files first")] = True


class SnapshotState(Result):
    """A captured snapshot. `left` are files and folders that could not be taken."""

    name: str
    namespace: str
    sizeBytes: int
    files: int
    frozenSeconds: float
    left: list[str]


class ForkState(Result):
    """New sandboxes, and the snapshot that they begin from. `reasons` say why there are no more of them."""

    snapshot: str
    items: list[ContainerState]
    reasons: list[str]


class RollbackState(Result):
    """The sandbox, which gets a new container now, and the snapshot of what it was ("": none was taken)."""

    sandbox: ContainerState
    backup: str


async def snapshot(call: Call, arguments: SnapshotArguments) -> SnapshotState:
    namespace, name = await find(call, arguments.id, arguments.namespace)
    call.require("create", SNAPSHOT, namespace)
    new = arguments.snapshot or f"{name[:40].rstrip('-')}-{secrets.token_hex(4)}"
    obj = await call.thread(call.services.snapshots.take, namespace, name, new, written_by=_WRITTEN_BY)
    status = obj.status
    return SnapshotState(
        name=new,
        namespace=namespace,
        sizeBytes=sum(status.get("sizeBytes", {}).values()),
        files=status.get("files", 0),
        frozenSeconds=status.get("frozenSeconds", 0.0),
        left=[f"{omission['name']}: {omission['reason']}" for omission in status.get("left", ())],
    )


async def fork(call: Call, arguments: ForkArguments) -> ForkState:
    namespace, name = await find(call, arguments.id, arguments.namespace)
    call.require("create", SANDBOX, namespace)
    call.require("create", SNAPSHOT, namespace)
    forks = await call.thread(
        call.services.snapshots.fork,
        namespace,
        name,
        count=arguments.count,
        prefix=arguments.namePrefix,
        snapshot=arguments.snapshot,
        partial=arguments.allowPartial,
        written_by=_WRITTEN_BY,
    )
    items = [state_of(call, sandbox) for sandbox in forks.sandboxes]
    return ForkState(snapshot=forks.snapshot.name, items=items, reasons=list(forks.reasons))


async def rollback(call: Call, arguments: RollbackArguments) -> RollbackState:
    namespace, name = await find(call, arguments.id, arguments.namespace)
    call.require("update", SANDBOX, namespace, name)
    if arguments.backup:
        call.require("create", SNAPSHOT, namespace)
    result = await call.thread(
        call.services.snapshots.rollback,
        namespace,
        name,
        arguments.snapshot,
        backup=arguments.backup,
        written_by=_WRITTEN_BY,
    )
    backup = result.backup.name if result.backup else ""
    return RollbackState(sandbox=state_of(call, result.sandbox), backup=backup)


TOOLS = (
    Tool(
        name="sandbox.snapshot",
        title="Take a snapshot of a sandbox",
        description="Save all files of a sandbox at one instant: root layer, folders in memory and volumes. It runs on."
        " sandbox.rollback returns to it, sandbox.fork begins from it.",
        arguments=SnapshotArguments,
        result=SnapshotState,
        run=snapshot,
    ),
    Tool(
        name="sandbox.fork",
        title="Fork a sandbox",
        description="Create sandboxes with the files that a sandbox has now, or as a snapshot has them: all of them, or"
        " none. They share what code has created, such as random seeds and keys.",
        arguments=ForkArguments,
        result=ForkState,
        run=fork,
    ),
    Tool(
        name="sandbox.rollback",
        title="Roll a sandbox back",
        description="Give a sandbox the files of a snapshot again, in a new container. Its present files are saved in"
        " another snapshot first, unless `backup` is false.",
        arguments=RollbackArguments,
        result=RollbackState,
        run=rollback,
        destructive=True,
    ),
)
