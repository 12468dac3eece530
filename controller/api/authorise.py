"""Before every route: what it asks for, read off the route itself, and whether the caller may."""

from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection

from controller.api.paths import PREFIX
from controller.kinds.access import Ask, Verb
from controller.kinds.registry import Registry
from controller.service import access

_SELF = ("/healthz", "/readyz", "/version", "/openapi.json", PREFIX, f"{PREFIX}/auth/whoami", f"{PREFIX}/auth/can-i")
_APPLY = (f"{PREFIX}/apply", f"{PREFIX}/diff")
_VERBS: dict[str, Verb] = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}


def authorise(registry: Registry) -> Callable[[HTTPConnection], Awaitable[None]]:
    """The dependency of all routes of an application."""
    kinds = {kind.plural: kind for kind in registry}

    def ask(connection: HTTPConnection) -> Ask:
        template, given = str(connection.scope["route"].path), connection.path_params
        if template in _SELF:
            return Ask("self")
        if template in _APPLY:
            return Ask("apply")
        parts = template.removeprefix(f"{PREFIX}/").split("/") if template.startswith(f"{PREFIX}/") else []
        named = parts[:2] == ["namespaces", "{namespace}"]
        parts = parts[2:] if named else parts
        kind = kinds.get(parts[0]) if parts else None
        if kind is None or (named and not kind.namespaced):
            return Ask("admin", sub=template)
        namespace = given["namespace"] if named else None if kind.namespaced else ""
        name = given.get("name", "") if parts[1:2] == ["{name}"] else ""
        sub = "/".join(parts[2:] if name else parts[1:])
        return Ask(_verb(connection, name, sub), kind.name, namespace, name, sub)

    async def check(connection: HTTPConnection) -> None:
        access.require(ask(connection), registry)

    return check


def _verb(connection: HTTPConnection, name: str, sub: str) -> Verb:
    if connection.scope["type"] == "websocket":
        return "use"
    if connection.scope["method"] in ("GET", "HEAD"):
        return "get" if name else "list"
    return "use" if sub else _VERBS.get(connection.scope["method"], "admin")
