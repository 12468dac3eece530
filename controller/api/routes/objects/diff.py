"""POST diff: changes that apply would make, and with `plan` the engine calls. Writes nothing."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from controller.api.common import models
from controller.api.common.dependencies import LargeBodies, UseCases
from controller.api.common.listing import as_text
from controller.api.common.models import PREFIX
from controller.api.common.parsing import BoundedRoute
from controller.api.routes.objects.apply import SetFields, SpecFile
from controller.kinds.meta import StoredObject
from controller.service.errors import BadRequest
from controller.service.explain.diff import Change, Difference, Forecast, Movement
from controller.service.listing import serialize
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
    differences = services.diff.diff(
        [document.source() for document in body.documents],
        namespace=body.namespace or None,
        plan=body.plan,
        delete=body.delete,
        as_set=body.as_set,
        replaces=body.replace,
    )
    items, size = list[bytes](), 0
    for difference in differences:
        items.append(as_text(_item(difference)))
        size += len(items[-1])
        if size > _MOST_BYTES:
            text = f"the differences are larger than {_MOST_BYTES >> 20} MiB; name fewer documents at once"
            raise BadRequest(text)
    head = as_text({"apiVersion": API_VERSION, "kind": "DiffResult"})
    return Response(b"".join((head[:-1], b',"items":[', b",".join(items), b"]}")), media_type="application/json")


def _item(difference: Difference) -> serialize.Json:
    stored = difference.before or difference.after
    names = {} if stored is None else {"name": stored.name, "namespace": stored.namespace}
    return {
        "kind": difference.kind.name,
        "resource": f"{difference.kind.name.lower()}.{API_GROUP}",
        "metadata": {key: value for key, value in names.items() if value},
        "result": difference.result,
        "before": _object(difference.before),
        "after": None
        if difference.result in ("deleted", "pruned")
        else _object(difference.after, new=difference.before is None),
        "changes": [_change(change) for change in difference.changes],
        "plans": [_forecast(forecast) for forecast in difference.forecasts],
        "quotas": [_movement(movement) for movement in difference.quotas],
    }


def _movement(movement: Movement) -> serialize.Json:
    titles = ("resource", "before", "after", "hard")
    return {
        "quota": movement.quota,
        "used": [dict(zip(titles, resource, strict=True)) for resource in movement.resources],
    }


def _object(obj: StoredObject | None, *, new: bool = False) -> serialize.Json | None:
    """Return the object without its status; a new one also without uid, version and time."""
    if obj is None:
        return None
    document = {key: value for key, value in serialize.obj(obj).items() if key != "status"}
    hidden = ("uid", "resourceVersion", "creationTimestamp") if new else ("resourceVersion",)
    document["metadata"] = {key: value for key, value in document["metadata"].items() if key not in hidden}
    return document


def _change(change: Change) -> serialize.Json:
    document: dict[str, Any] = {"field": change.field, "before": change.before, "after": change.after}
    return {**document, "effect": change.effect, "why": change.why} if change.effect else document


def _forecast(forecast: Forecast) -> serialize.Json:
    return {
        "object": str(forecast.ref),
        "calls": [{"call": str(action), "why": action.why} for action in forecast.actions],
        "reason": forecast.reason,
        "message": forecast.message,
        "waitSeconds": forecast.wait_seconds,
        "gone": forecast.is_removed,
    }
