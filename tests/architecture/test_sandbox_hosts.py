"""Every route that needs the engine of a sandbox's host goes there, or is listed here with what it answers instead.

A route is told by its code: it uses a use-case of the bundle `SandboxServices`, whose work is that of one host.
"""

import ast
import inspect
import sys
from dataclasses import fields
from functools import cache
from typing import Any

from fastapi.routing import APIRoute, APIWebSocketRoute

from controller.api.app import routed_app
from controller.api.common.models import PREFIX
from controller.api.fleet.forwarding import BY_STORE, COLLECTED, needs_host
from controller.kinds.registry import discover
from controller.service.services import SandboxServices
from tests.trees import parsed

_NAMED = f"{PREFIX}/namespaces/{{namespace}}"
_SANDBOX = f"{_NAMED}/sandboxes/{{name}}/"
_OF_ONE_HOST = {use_case.name for use_case in fields(SandboxServices)} | {"file_requests"}
# Routes that use one host's work, and are answered by the daemon that is asked.
ANSWERED_HERE = {
    f"{PREFIX}/images": "the daemon that is asked asks the others",
    f"{PREFIX}/images/inspect": "on the host that the query names, else the daemon that is asked asks the others",
    f"{PREFIX}/images/pulling": "pulls are those of the host that is asked",
    f"{PREFIX}/images/pull": "done on the host that the query names",
    f"{PREFIX}/images/build": "as above",
    f"{PREFIX}/images/push": "as above",
    f"{PREFIX}/images/delete": "as above",
    f"{PREFIX}/secrets": "secrets are files of the host that is asked",
    f"{_NAMED}/secrets/{{name}}": "as above",
    f"{PREFIX}/namespaces/{{namespace}}/sandboxes/-/metrics": "the daemon that is asked asks the others",
    f"{PREFIX}/sandboxes/-/metrics": "as above",
    f"{_NAMED}/mcpservers/{{name}}/why": "sessions are those of the daemon that is asked",
    f"{_NAMED}/providers/-/usage": "use of the models is that of this host's gateway",
    f"{PREFIX}/providers/-/usage": "as above",
    f"{_NAMED}/sandboxsnapshots/{{name}}/archive": "the files are on the host that the snapshot names",
    f"{_SANDBOX}open": "projects are objects: opening one writes and waits",
    f"{_SANDBOX}close": "as above",
}


def routes() -> list[APIRoute | APIWebSocketRoute]:
    """Every route of the API."""
    routes_: list[Any] = list(_flat(routed_app(discover(), speaks_mcp=True).routes))
    return [route for route in routes_ if isinstance(route, APIRoute | APIWebSocketRoute)]


def _flat(routes_: Any) -> Any:
    for route in routes_:
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        yield from _flat(inner) if inner else (route,)


@cache
def uses(module: str) -> dict[str, frozenset[str]]:
    """The names of one host's work in each function of a module, with those of functions of it that it names."""
    tree = parsed(inspect.getsource(sys.modules[module]))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

    def of(name: str, visited: frozenset[str]) -> frozenset[str]:
        names: set[str] = set()
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.Attribute) and node.attr in _OF_ONE_HOST and _is_services(node.value):
                names.add(node.attr)
            if isinstance(node, ast.Name) and node.id == "Files":  # the dependency of routes/sandbox/files.py
                names.add("files")
            if isinstance(node, ast.Name) and node.id in functions and node.id not in visited:
                names |= of(node.id, visited | {node.id})
        return frozenset(names)

    return {name: of(name, frozenset({name})) for name in functions}


def _is_services(value: ast.expr) -> bool:
    return (isinstance(value, ast.Name) and "services" in value.id) or (
        isinstance(value, ast.Attribute) and "services" in value.attr
    )


def test_routes_that_need_a_host_go_there_or_are_listed() -> None:
    paths = {
        route.path
        for route in routes()
        if uses(route.endpoint.__module__).get(route.endpoint.__name__) and not needs_host(route.path)
    }
    assert paths == set(ANSWERED_HERE), "give the route a path below its sandbox, or list it with a reason"


def test_what_is_collected_uses_one_host_s_work() -> None:
    assert set(ANSWERED_HERE) >= COLLECTED


def test_paths_below_a_sandbox_go_to_its_host() -> None:
    below = {route.path.removeprefix(_SANDBOX) for route in routes() if route.path.startswith(_SANDBOX)}
    answered_here = {route for route in below if not needs_host(_SANDBOX + route)}
    assert answered_here == BY_STORE
    assert {
        "exec",
        "logs",
        "files",
        "files/archive",
        "portforward",
        "proxy/{port}",
        "attest",
        "inspect",
    } <= below - answered_here
    assert {"mcp", "mcp/execute", "metrics", "why", "execs", "execs/{id}/kill"} <= below - answered_here
