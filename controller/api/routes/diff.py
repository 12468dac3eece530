"""POST diff: changes that apply would make, and with `plan` the engine calls. Writes nothing."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from controller.api.common import models
from controller.api.common.dependencies import LargeBodies, UseCases
from controller.api.common.listing import as_text
from controller.api.common.models import PREFIX
from controller.api.common.parsing import BoundedRoute
from controller.api.routes.apply import SetFields, SpecFile
from controller.kinds.meta import StoredObject
from controller.service.errors import BadRequest
from controller.service.explain.diff import Change, Difference, Forecast, Movement
from controller.service.objects import serialize
from controller.service.parsing import SMALL_BYTES
from controller.service.services import Services
from controller.version import API_GROUP, API_VERSION

_MOST_BYTES = 32 << 20


class DiffRequest(SetFields):
    """Documents to compare with the stored objects; the fields are those of apply."""

    documents: Annotated[list[SpecFile], Field(max_length=10000)]
    namespace: str | None = None
    plan: Annotated[bool, Field(description="add the effect of each change, and the engine calls")] = False
    delete: Annotated[bool, Field(description="show a deletion of the named objects instead")] = False
    replace: Annotated[
        bool, Field(description="show a replacement (PUT) instead: what a document leaves out is removed")
    ] = False


class FieldChange(models.Shape):
    """A changed field; with `plan` its effect on the running sandbox, and why."""

    field: str
    before: Any = None
    after: Any = None
    effect: str = ""
    why: str = ""


class PlannedCall(models.Shape):
    """One engine call, and why it is made."""

    call: str
    why: str


class PlannedObject(models.Shape):
    """The engine calls for one object."""

    object: str
    calls: list[PlannedCall]
    reason: str
    message: str
    waitSeconds: float | None
    gone: bool


class DiffItem(models.Shape):
    """Change of one object."""

    kind: str
    resource: str
    metadata: dict[str, Any]
    result: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    changes: list[FieldChange]
    plans: list[PlannedObject]
    quotas: list[dict[str, Any]]


class DiffResult(models.Shape):
    """Changes that apply would make."""

    apiVersion: models.Version
    kind: Literal["DiffResult"]
    items: list[DiffItem]


routes = APIRouter(prefix=PREFIX, tags=["apply"], route_class=BoundedRoute)


@routes.post("/diff", operation_id="diff", responses={200: {"model": DiffResult}, 409: {}, 422: {}, 503: {}})
async def diff(services: UseCases, parsing: LargeBodies, request: Request, body: DiffRequest) -> Response:
    """The same path as apply, stopped before the write."""
    # Of whatever size the request is, the objects that it names may be large: it is one of its caller's large requests.
    size = len(await request.body())
    run = parsing.resume if size > SMALL_BYTES else parsing.run
    return await run(max(size, SMALL_BYTES + 1), _answer, services, body)


def _answer(services: Services, body: DiffRequest) -> Response:
    found = services.diff.diff(
        [each.source() for each in body.documents],
        namespace=body.namespace or None,
        plan=body.plan,
        delete=body.delete,
        as_set=body.as_set,
        whole=body.replace,
    )
    items, size = list[bytes](), 0
    for each in found:
        items.append(as_text(_item(each)))
        size += len(items[-1])
        if size > _MOST_BYTES:
            text = f"the differences are larger than {_MOST_BYTES >> 20} MiB; name fewer documents at once"
            raise BadRequest(text)
    head = as_text({"apiVersion": API_VERSION, "kind": "DiffResult"})
    return Response(b"".join((head[:-1], b',"items":[', b",".join(items), b"]}")), media_type="application/json")


def _item(each: Difference) -> serialize.Json:
    shown = each.before or each.after
    names = {} if shown is None else {"name": shown.name, "namespace": shown.namespace}
    return {
        "kind": each.kind.name,
        "resource": f"{each.kind.name.lower()}.{API_GROUP}",
        "metadata": {key: value for key, value in names.items() if value},
        "result": each.result,
        "before": _object(each.before),
        "after": None if each.result in ("deleted", "pruned") else _object(each.after, new=each.before is None),
        "changes": [_change(one) for one in each.changes],
        "plans": [_forecast(one) for one in each.forecasts],
        "quotas": [_movement(one) for one in each.quotas],
    }


def _movement(found: Movement) -> serialize.Json:
    titles = ("resource", "before", "after", "hard")
    return {"quota": found.quota, "used": [dict(zip(titles, each, strict=True)) for each in found.resources]}


def _object(obj: StoredObject | None, *, new: bool = False) -> serialize.Json | None:
    """Return the object without its status; a new one also without uid, version and time."""
    if obj is None:
        return None
    shown = {key: value for key, value in serialize.obj(obj).items() if key != "status"}
    hidden = ("uid", "resourceVersion", "creationTimestamp") if new else ("resourceVersion",)
    shown["metadata"] = {key: value for key, value in shown["metadata"].items() if key not in hidden}
    return shown


def _change(change: Change) -> serialize.Json:
    shown: dict[str, Any] = {"field": change.field, "before": change.before, "after": change.after}
    return {**shown, "effect": change.effect, "why": change.why} if change.effect else shown


def _forecast(found: Forecast) -> serialize.Json:
    return {
        "object": str(found.ref),
        "calls": [{"call": str(each), "why": each.why} for each in found.actions],
        "reason": found.reason,
        "message": found.message,
        "waitSeconds": found.wait_seconds,
        "gone": found.gone,
    }
