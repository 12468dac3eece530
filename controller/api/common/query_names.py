"""Names of query parameters: those of a route's signature, and those that kubectl sends. All others are refused."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fastapi.dependencies.models import Dependant
from starlette.requests import HTTPConnection

from controller.api.common.models import PREFIX
from controller.documents.model_fields import closest
from controller.service.errors import BadRequest

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
ANY = "*"
_READ_BY_HAND = "query_names"  # attribute of an endpoint that reads its query itself
_EVERYWHERE = frozenset(("pretty", "timeout"))
# Sent by kubectl and Kubernetes' client libraries. None changes an answer here: either there is nothing to choose, or
# the whole answer is right as well.
_OF_LISTS = frozenset(
    (
        *("allowWatchBookmarks", "includeObject", "limit", "resourceVersion", "resourceVersionMatch"),
        *("sendInitialEvents", "timeoutSeconds", "watch"),
    )
)
_OF_OBJECTS = frozenset(("includeObject", "resourceVersion"))
_OF_WRITES = frozenset(("fieldManager", "fieldValidation"))
_BY_METHOD = {
    "POST": _OF_WRITES,
    "PUT": _OF_WRITES,
    "PATCH": _OF_WRITES | {"force"},
    "DELETE": frozenset(("gracePeriodSeconds", "orphanDependents")),
}
_OF_HEALTH = frozenset(("exclude", "verbose"))
_HEALTH = ("/healthz", "/readyz")
_MOST_SHOWN, _MOST_LETTERS = 5, 60


def takes_query(*names: str) -> Callable[[_Endpoint], _Endpoint]:
    """Return the decorator of an endpoint that reads these parameters itself. ANY: it checks or passes on all."""

    def decorate(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _READ_BY_HAND, frozenset(names))
        return endpoint

    return decorate


async def check_query(connection: HTTPConnection) -> None:
    """Refuse parameters that the request's route does not know. Raises BadRequest with each of them."""
    if not connection.scope["query_string"]:
        return
    plurals = frozenset(kind.plural for kind in connection.app.state.services.registry)
    known_names = _known_names(connection.scope["route"], connection.scope.get("method", ""), plurals)
    unknown = [name for name in dict.fromkeys(connection.query_params) if name not in known_names]
    if ANY in known_names or not unknown:
        return
    causes = [{"field": name[:_MOST_LETTERS], "message": _advice(name, known_names)} for name in unknown[:_MOST_SHOWN]]
    text = "; ".join(f"{cause['field']}: {cause['message']}" for cause in causes)
    remark = f"; and {len(unknown) - len(causes)} more" if len(unknown) > len(causes) else ""
    raise BadRequest(text + remark, causes=[{**cause, "reason": "FieldValueNotSupported"} for cause in causes])


def _advice(name: str, known_names: frozenset[str]) -> str:
    if name == "dryRun":
        return "not a query parameter of this request; send the document to `apply`, or a PATCH, which take it"
    meant = closest(name, known_names) or next(
        (candidate for candidate in sorted(known_names) if candidate.lower().startswith(name.lower())), ""
    )
    hint = f"did you mean `{meant}`?" if meant else f"known: {', '.join(sorted(known_names))}"
    return f"not a query parameter of this request; {hint}"


def _known_names(route: Any, method: str, plurals: frozenset[str]) -> frozenset[str]:
    read_by_hand: frozenset[str] = getattr(route.endpoint, _READ_BY_HAND, frozenset())
    return (
        _EVERYWHERE
        | read_by_hand
        | frozenset(_declared_names(route.dependant))
        | _of_kubectl(route.path, method, plurals)
    )


def _declared_names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for inner in dependant.dependencies:
        yield from _declared_names(inner)


def _of_kubectl(path: str, method: str, plurals: frozenset[str]) -> frozenset[str]:
    if path in _HEALTH:
        return _OF_HEALTH
    parts = path.removeprefix(f"{PREFIX}/").removeprefix("namespaces/{namespace}/").split("/")
    if parts[0] not in plurals or len(parts) > 2 or (len(parts) == 2 and parts[1] != "{name}"):
        return frozenset()
    if method in ("GET", "HEAD"):
        return _OF_OBJECTS if len(parts) == 2 else _OF_LISTS
    return _BY_METHOD.get(method, frozenset())
