"""Sandboxes as the containers of docker.* tools: their ids, their state, and what a call waits for."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from controller.documents.model_fields import closest
from controller.kinds.access.access import AccessRequest
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import status_word
from controller.mcp.arguments import Arguments, Result
from controller.mcp.text import for_models, plain
from controller.mcp.tool import Call
from controller.service.access import access
from controller.service.errors import NotFound
from controller.service.listing import serialize
from controller.service.services import Services

_CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")
_RUNTIME_NAME = "pdk-"
_MOST_NAMED = 10
NO_IMAGE = (
    *("ImageMissing", "ImagePullFailed", "ImageBuildFailed", "ImageRefused"),
    *("AgentImageMissing", "EgressImageMissing"),
)
Namespace = Annotated[str, Field(max_length=63, description="default: this client's own")]


class ObjectArguments(Arguments):
    """Arguments that name an object of one kind."""

    other_names: ClassVar[Mapping[str, str]] = {"name": "id"}
    kind: ClassVar[Kind]

    id: Annotated[str, Field(min_length=1, max_length=256)]
    namespace: Namespace = ""


class SandboxArguments(ObjectArguments):
    """Arguments of a tool that works in a sandbox."""

    other_names: ClassVar[Mapping[str, str]] = {"container": "id", "name": "id", "sandbox": "id"}
    kind: ClassVar[Kind] = SANDBOX

    id: Annotated[str, Field(min_length=1, max_length=256, description="the sandbox: its name, or its container's id")]


class ContainerState(Result):
    """State of a sandbox. `message` says why it is not ready."""

    id: str = Field(description="pass it to the other tools")
    name: str
    namespace: str
    image: str
    status: str = Field(description="Running, Pending, Suspended, Completed, or the reason of a problem")
    ready: bool = Field(description="true: commands can run in it")
    message: str = ""
    restarts: int = 0
    created: str = ""


def parse_id(sandbox_id: str, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name that this id means, where the name may be a container's; None: it can mean nothing."""
    place, slash, name = sandbox_id.strip().removeprefix("sandbox://").rpartition("/")
    place = place if slash else namespace
    return None if not name or "/" in place else (place, name)


def may_be_container(name: str) -> bool:
    """Return True if this may be the id or name of a container."""
    return bool(_CONTAINER_ID.fullmatch(name)) or name.startswith(_RUNTIME_NAME)


def by_container(services: Services, namespace: str, sandbox_id: str) -> str:
    """Return the name of the sandbox with this name, or of the one that has this container; else what was given."""
    sandboxes = services.objects.list(SANDBOX, namespace).objects
    return next(
        (sandbox.name for sandbox in sandboxes if sandbox.name == sandbox_id or _has_container(sandbox, sandbox_id)),
        sandbox_id,
    )


async def find(call: Call, sandbox_id: str, namespace: str = "") -> tuple[str, str]:
    """Return namespace and name of the sandbox that this id means; it need not exist.

    Containers that are not Paddock's are never found. Raises NotFound.
    """
    target = parse_id(sandbox_id, namespace or call.namespace)
    if target is None:
        raise NotFound(f"sandboxes `{sandbox_id[:100]}` not found")
    place, name = target
    if may_be_container(name):
        call.require("list", SANDBOX, place)
        name = await call.thread(by_container, call.services, place, name)
    return place, name


async def existing_names(call: Call, arguments: ObjectArguments) -> str:
    """Return the end of a message that names those there are; "" if the named one is there, or none may be listed.

    What is missing then is something in it, such as a file.
    """
    target = parse_id(arguments.id, arguments.namespace or call.namespace)
    place = target[0] if target is not None else call.namespace
    if not access.decision(AccessRequest("list", arguments.kind.name, place)).allowed:
        return ""
    names = [stored.name for stored in (await call.thread(call.services.objects.list, arguments.kind, place)).objects]
    if target is not None and target[1] in names:
        return ""
    if not names:
        return "; there are none"
    meant = await call.thread(closest, target[1], names) if target is not None else ""  # slow among thousands
    names.sort(key=lambda name: (name != meant, name))
    remark = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"; there {'is' if len(names) == 1 else 'are'} {', '.join(names[:_MOST_NAMED])}{remark}"


def state_of(call: Call, obj: StoredObject) -> ContainerState:
    """Return the state of a sandbox, with the id that a later call of the same client may use."""
    ready = _condition(obj, "Ready")
    is_ready = ready.get("status") == "True"
    return ContainerState(
        id=obj.name if obj.namespace == call.namespace else f"{obj.namespace}/{obj.name}",
        name=obj.name,
        namespace=obj.namespace,
        image=_image(obj),
        status=status_word(obj),
        ready=is_ready and obj.deleted_at is None,
        message="" if is_ready else message_of(obj),
        restarts=int(obj.status.get("restartCount", 0)),
        created=serialize.timestamp(obj.created_at) if obj.created_at else "",
    )


def starting(obj: StoredObject | None) -> str | None:
    """Return what a sandbox waits for until it is ready; None: it is, or it will not be."""
    if obj is None or obj.deleted_at is not None or _is_over(obj) or image_problem(obj):
        return None
    ready = _condition(obj, "Ready")
    if ready.get("status") == "True" and _is_current(ready, obj):
        return None
    return message_of(obj) or "Pending: not reconciled yet"


def stopping(obj: StoredObject | None) -> str | None:
    """Return what a sandbox waits for until its container has stopped; None: it has."""
    if obj is None or _is_over(obj):
        return None
    suspended = _condition(obj, "Suspended")
    if suspended.get("status") == "True" and _is_current(suspended, obj):
        return None
    return message_of(obj) or "stopping"


def deleting(obj: StoredObject | None) -> str | None:
    """Return what a deleted sandbox waits for; None: it is gone."""
    return None if obj is None else "Terminating: its container is being removed"


def image_problem(obj: StoredObject) -> str:
    """Return the message for a sandbox whose image can't be had now; "" for any other."""
    ready = _condition(obj, "Ready")
    is_missing = ready.get("status") == "False" and ready.get("reason") in NO_IMAGE and _is_current(ready, obj)
    return message_of(obj) if is_missing else ""


async def image_names(call: Call) -> Sequence[str]:
    """Return the names of the images that the caller may use, as many as a message takes."""
    names = [name for image in await call.thread(call.services.images.list) for name in image.names]
    return names[:_MOST_NAMED]


def _is_over(obj: StoredObject) -> bool:
    accepted, finished = _condition(obj, "Accepted"), _condition(obj, "Finished")
    return any(
        condition.get("status") == status and _is_current(condition, obj)
        for condition, status in ((accepted, "False"), (finished, "True"))
    )


def _is_current(condition: Mapping[str, Any], obj: StoredObject) -> bool:
    return int(condition.get("observedGeneration", 0)) >= obj.generation


def message_of(obj: StoredObject) -> str:
    """Return the reason and message of the condition that explains why it is not ready."""
    conditions = [_condition(obj, type_) for type_ in ("Accepted", "Finished", "Suspended", "Ready")]
    wrong = ("False", "True", "True", "False")
    for condition, status in zip(conditions, wrong, strict=True):
        if condition.get("status") == status:
            return for_models(plain(f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")))
    return ""


def _condition(obj: StoredObject, type_: str) -> Mapping[str, Any]:
    conditions = (condition for condition in obj.status.get("conditions", ()) if condition.get("type") == type_)
    return next(conditions, {})


def _image(obj: StoredObject) -> str:
    inline, ref = obj.spec.get("template"), obj.spec.get("templateRef")
    return str(inline["image"]) if inline else f"template {ref['name']}" if ref else ""


def _has_container(obj: StoredObject, sandbox_id: str) -> bool:
    instance = obj.status.get("instanceRef", {})
    return sandbox_id == instance.get("name") or str(instance.get("containerID", "")).startswith(sandbox_id)
