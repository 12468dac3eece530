"""Sandboxes as pods, which are only read: for `kubectl get pods`, `kubectl logs NAME` and `kubectl exec NAME`."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from controller.api.common.dependencies import UseCases
from controller.api.common.paths import PODS, PODS_EVERYWHERE
from controller.api.common.query_names import ANY, takes_query
from controller.documents.foreign_kinds import document_advice
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import status_word
from controller.service import errors
from controller.service.listing import serialize
from controller.service.listing.table import KUBERNETES, table
from controller.service.services import Services

POD = f"{PODS}/{{name}}"
CONTAINER = "sandbox"
_ENDED_WELL = "Completed"
_NOT_WATCHED = "pods can't be watched; write sandboxes, as in `kubectl get sandboxes -w`"
_RESOURCES = [
    {"name": "pods", "singularName": "pod", "shortNames": ["po"], "kind": "Pod", "namespaced": True, "verbs": verbs}
    for verbs in [["get", "list", "create"]]
] + [
    {"name": f"pods/{sub}", "singularName": "", "kind": kind, "namespaced": True, "verbs": verbs}
    for sub, kind, verbs in (("exec", "PodExecOptions", ["create", "get"]), ("log", "Pod", ["get"]))
]
routes = APIRouter(include_in_schema=False)


@routes.get("/api/v1")
async def resources() -> JSONResponse:
    """The one kind of Kubernetes' own group: sandboxes by the name of pods."""
    return JSONResponse({"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES})


@routes.get(PODS_EVERYWHERE)
@takes_query(ANY)
async def list_everywhere(services: UseCases, request: Request) -> JSONResponse:
    """The sandboxes of all namespaces."""
    return await run_in_threadpool(_list, services, request, None)


@routes.get(PODS)
@takes_query(ANY)
async def list_(services: UseCases, request: Request, namespace: str) -> JSONResponse:
    """The sandboxes of a namespace."""
    return await run_in_threadpool(_list, services, request, namespace)


@routes.get(POD)
@takes_query(ANY)
async def read(services: UseCases, request: Request, namespace: str, name: str) -> JSONResponse:
    """One sandbox."""
    stored = await run_in_threadpool(services.objects.get, SANDBOX, namespace, name)
    if _wants_table(request):
        return JSONResponse(table(SANDBOX, [stored], services.objects.now(), version=KUBERNETES))
    return JSONResponse(pod(stored))


@routes.post(PODS)
@takes_query(ANY)
async def create(namespace: str) -> JSONResponse:
    """Refuse a manifest of a pod by what to write. Raises MethodNotAllowed."""
    advice = document_advice("v1", "Pod")
    raise errors.MethodNotAllowed(f"a Pod in namespace {namespace} is {advice}", kind="pods")


def _list(services: Services, request: Request, namespace: str | None) -> JSONResponse:
    query = request.query_params
    if query.get("watch", "0").lower() in ("1", "true"):
        raise errors.MethodNotAllowed(_NOT_WATCHED, kind="pods")
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    page = services.objects.list(SANDBOX, namespace, labels=labels, fields=fields)
    if _wants_table(request):
        return JSONResponse(table(SANDBOX, page.objects, services.objects.now(), page.revision, KUBERNETES))
    items = [pod(stored) for stored in page.objects]
    head = {"kind": "PodList", "apiVersion": "v1", "metadata": serialize.list_metadata(page.revision)}
    return JSONResponse({**head, "items": items})


def _wants_table(request: Request) -> bool:
    return "as=table" in request.headers.get("accept", "").replace(" ", "").lower()


def pod(stored: StoredObject) -> dict[str, Any]:
    """Return a sandbox in the shape of a pod."""
    conditions = {condition["type"]: condition for condition in stored.status.get("conditions", ())}
    ready = conditions.get("Ready", {}).get("status") == "True"
    image = stored.spec.get("template", {}).get("image") or stored.spec.get("templateRef", {}).get("name", "")
    phase = _phase(stored, ready, conditions.get("Finished", {}))
    container = {
        "name": CONTAINER,
        "image": image,
        "imageID": "",
        "ready": ready,
        "restartCount": stored.status.get("restartCount", 0),
        "state": {"running": {}} if ready else {"waiting": {"reason": status_word(stored)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": serialize.metadata(stored),
        "spec": {"containers": [{"name": CONTAINER, "image": image}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [container],
        },
    }


def _phase(stored: StoredObject, ready: bool, finished: dict[str, Any]) -> str:
    if finished.get("status") == "True":
        return "Succeeded" if finished.get("reason") == _ENDED_WELL else "Failed"
    return "Running" if ready and stored.deleted_at is None else "Pending"
