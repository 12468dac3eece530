"""sandbox.*: specs as `paddock apply` takes them, and objects as `paddock get` shows them."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from controller.kinds.access.access import AccessRequest
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import status_word
from controller.mcp.arguments import Arguments, Result
from controller.mcp.sandboxes import Namespace, SandboxArguments, deleting, find, message_of, starting
from controller.mcp.text import for_models
from controller.mcp.tool import WAIT_SECONDS, Basic, Call, Tool
from controller.service.access import access
from controller.service.explain import why as explain
from controller.service.listing import serialize
from controller.service.objects.apply import Applied as AppliedByService
from controller.service.objects.apply import Source
from controller.service.objects.apply_set import ApplySet

_FILE = "documents"
_WRITTEN_BY = "mcp"
_MOST_LISTED, _MOST_LISTED_BYTES = 200, 1 << 20

Wait = Annotated[float, Field(ge=0, le=WAIT_SECONDS, description="seconds to wait, at most 25")]


class ApplyArguments(Arguments):
    documents: Annotated[
        str | dict[str, Any] | list[dict[str, Any]],
        Field(description="spec documents as YAML or JSON text, or as objects; as in `paddock apply -f`"),
    ]
    namespace: Namespace = ""
    dryRun: Annotated[bool, Field(description="check everything, and change nothing")] = False
    applySet: Annotated[str, Field(max_length=253, description="the apply set that the objects join")] = ""
    prune: Annotated[bool, Field(description="delete members of the set that are not in the documents")] = False
    waitSeconds: Wait = WAIT_SECONDS


class AppliedObject(Result):
    """One object. `result`: created, configured, unchanged or pruned. `status` and `message` are a sandbox's."""

    kind: str
    namespace: str
    name: str
    result: str
    status: str = ""
    message: str = ""


class Applied(Result):
    """Results in the order of the documents."""

    items: list[AppliedObject]


class DeleteArguments(SandboxArguments):
    waitSeconds: Wait = WAIT_SECONDS


class ListArguments(Arguments):
    namespace: Namespace = ""
    labels: Annotated[str, Field(max_length=4096, description="label selector, such as app=web,tier!=db")] = ""


class SandboxObject(Result):
    """A Sandbox as `paddock get -o json` shows it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    apiVersion: str
    kind: str
    metadata: dict[str, Any]
    spec: dict[str, Any]
    status: dict[str, Any] = {}


class SandboxList(Result):
    """Sandboxes by name. `more` are not listed: narrow the labels."""

    items: list[SandboxObject]
    more: int = 0


class Why(Result):
    """The last decision about a sandbox, with its inputs, due calls and latest events."""

    model_config = ConfigDict(frozen=True, extra="allow")

    verdict: str
    reason: str
    message: str
    events: list[dict[str, Any]]


class Deleted(Result):
    """Result of a deletion. Until it is `gone`, its container is being removed."""

    name: str
    namespace: str
    gone: bool


async def apply(call: Call, arguments: ApplyArguments) -> Applied:
    access.require(AccessRequest("apply"), call.services.registry)

    def run() -> list[AppliedByService]:
        return call.services.apply.apply(
            _sources(arguments.documents),
            namespace=arguments.namespace or None,
            dry_run=arguments.dryRun,
            as_set=ApplySet(arguments.applySet, prune=arguments.prune),
            applied_by=_WRITTEN_BY,
        )

    applied = await call.parse(run)
    items = await applied_objects(call, applied, 0.0 if arguments.dryRun else arguments.waitSeconds)
    return Applied(items=items)


async def applied_objects(call: Call, applied: Sequence[AppliedByService], seconds: float) -> list[AppliedObject]:
    """Return the results, once the sandboxes among them are ready, or after so many seconds in all."""
    deadline = time.monotonic() + seconds
    items = []
    for outcome in applied:
        obj = outcome.obj
        status = ""
        message = ""
        if obj.kind == SANDBOX.name and outcome.result != "pruned" and seconds:
            seconds_left = max(0.0, deadline - time.monotonic())
            sandbox = await call.wait(obj.namespace, obj.name, starting, seconds_left)
            status = status_word(sandbox) if sandbox is not None else "Deleted"
            message = "" if sandbox is None or status == "Running" else message_of(sandbox)
        identity = {"kind": obj.kind, "namespace": obj.namespace, "name": obj.name}
        items.append(AppliedObject(**identity, result=outcome.result, status=status, message=message))
    return items


async def get(call: Call, arguments: SandboxArguments) -> dict[str, Any]:
    namespace, name = await find(call, arguments.id, arguments.namespace)
    call.require("get", SANDBOX, namespace, name)
    return _as_json(await call.thread(call.services.objects.get, SANDBOX, namespace, name))


async def list_(call: Call, arguments: ListArguments) -> dict[str, Any]:
    namespace = arguments.namespace or call.namespace
    call.require("list", SANDBOX, namespace)
    return await call.thread(_list_page, call, namespace, arguments.labels)


async def why(call: Call, arguments: SandboxArguments) -> dict[str, Any]:
    namespace, name = await find(call, arguments.id, arguments.namespace)
    call.require("get", SANDBOX, namespace, name, "why")
    reasons = explain.as_json(await call.thread(call.services.why.why, SANDBOX, namespace, name))
    events = [_with_advice(event) for event in reasons["events"]]
    return {**_with_advice(reasons), "events": events}


async def delete(call: Call, arguments: DeleteArguments) -> Deleted:
    namespace, name = await find(call, arguments.id, arguments.namespace)
    call.require("delete", SANDBOX, namespace, name)
    remove = partial(call.services.objects.delete, deleted_by=_WRITTEN_BY)
    deleted = await call.thread(remove, SANDBOX, namespace, name)

    def waits_for(current: Any) -> str | None:
        return deleting(current if current is not None and current.uid == deleted.uid else None)

    current = await call.wait(namespace, name, waits_for, arguments.waitSeconds)
    return Deleted(name=name, namespace=namespace, gone=waits_for(current) is None)


def _list_page(call: Call, namespace: str, labels: str) -> dict[str, Any]:
    """Return the first sandboxes, as many as fit into a message."""
    sandboxes = call.services.objects.list(SANDBOX, namespace, labels=labels).objects
    items: list[dict[str, Any]] = []
    size = 0
    for obj in islice(sandboxes, _MOST_LISTED):
        size += len(call.services.watches.texts.json(obj))
        if items and size > _MOST_LISTED_BYTES:
            break
        items.append(_as_json(obj))
    return {"items": items, "more": len(sandboxes) - len(items)}


def _as_json(obj: StoredObject) -> dict[str, Any]:
    """Return a sandbox as JSON."""
    document = serialize.obj(obj)
    status = document.get("status", {})
    if "conditions" not in status:
        return document
    return {
        **document,
        "status": {**status, "conditions": [_with_advice(condition) for condition in status["conditions"]]},
    }


def _with_advice(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a condition, event or explanation with hints for a model."""
    return {**entry, "message": for_models(str(entry.get("message", "")))}


def _sources(documents: str | dict[str, Any] | list[dict[str, Any]]) -> list[Source]:
    if isinstance(documents, str):
        return [Source(_FILE, documents)]
    many = [documents] if isinstance(documents, dict) else documents
    files = [_FILE if len(many) == 1 else f"{_FILE}[{at}]" for at in range(len(many))]
    return [Source(file, json.dumps(document)) for file, document in zip(files, many, strict=True)]


TOOLS = (
    Tool(
        name="sandbox.apply",
        title="Apply spec documents",
        description="Create or change objects from spec documents (kind Sandbox, SandboxTemplate, SandboxPool ...), all"
        " or none, as `paddock apply` does, and wait until their sandboxes are ready. Every error is reported, with its"
        " field.",
        arguments=ApplyArguments,
        result=Applied,
        run=apply,
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="sandbox.get",
        title="Show a sandbox",
        description="Return a sandbox with its spec, status and conditions.",
        arguments=SandboxArguments,
        result=SandboxObject,
        run=get,
        role="viewer",
        read_only=True,
    ),
    Tool(
        name="sandbox.list",
        title="List sandboxes with specs",
        description="Return the sandboxes of a namespace with specs and status.",
        arguments=ListArguments,
        result=SandboxList,
        run=list_,
        role="viewer",
        read_only=True,
    ),
    Tool(
        name="sandbox.why",
        title="Explain a sandbox",
        description="Explain the state of a sandbox and what it waits for.",
        arguments=SandboxArguments,
        result=Why,
        run=why,
        basic=Basic("Explain the state of a sandbox and what it waits for.", ("id",)),
        role="viewer",
        read_only=True,
        at_host=True,
    ),
    Tool(
        name="sandbox.delete",
        title="Delete a sandbox",
        description="Delete a sandbox and its container. Volumes are kept unless their reclaim policy is Delete.",
        arguments=DeleteArguments,
        result=Deleted,
        run=delete,
        destructive=True,
        idempotent=True,
    ),
)
