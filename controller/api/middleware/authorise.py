"""Authorisation of every route: the verb and object are derived from the route itself.

Work in sandboxes (exec, files, ports) changes nothing in the store, so it is audited here.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request

from controller.api.common.models import PREFIX, SERVER_PATH
from controller.api.common.paths import DISCOVERY, OF_KUBECTL, PODS, PODS_EVERYWHERE
from controller.api.fleet.forwarding import Elsewhere, Forwarding
from controller.api.fleet.identity import identity_of
from controller.kinds.access.access import AccessRequest, Verb
from controller.kinds.host import KIND as HOST
from controller.kinds.mcpserver import KIND as MCP_SERVER
from controller.kinds.registry import Registry
from controller.policy.access import is_work
from controller.policy.foreign_tools import audited_name
from controller.policy.inside.agent_call import audit_details, tools_of_execute, tools_of_mcp
from controller.service.access import access
from controller.service.services import Services
from controller.version import API_GROUP

_SELF = (
    "/healthz",
    "/readyz",
    "/version",
    "/openapi.json",
    "/docs",
    "/api",
    "/apis",
    f"/apis/{API_GROUP}",
    PREFIX,
    *OF_KUBECTL,
    f"{PREFIX}/auth/whoami",
    f"{PREFIX}/auth/can-i",
    f"{PREFIX}/ssh",
    f"{PREFIX}/ssh/keys",
    f"{PREFIX}/ssh/keys/{{fingerprint:path}}",
)
_OWN_RULES = ("/mcp", "/mcp/servers")  # each tool, or server, authorises its call
_APPLY = (f"{PREFIX}/apply", f"{PREFIX}/diff")
_IMAGES = tuple(
    f"{PREFIX}/images{suffix}" for suffix in ("", "/inspect", "/pull", "/pulling")
)  # the use-case decides, by each image's name
_COMMANDS = ("exec", "execs")
_AGENT = ("mcp", "mcp/execute")
_CONTEXTS = "contexts"
# Their routes call `state.record` on the thread that does the work, before it begins: a thread less for each call.
_RECORDED_AT_START = (
    *(f"{PREFIX}/namespaces/{{namespace}}/sandboxes/{{name}}/{sub}" for sub in ("exec", *_AGENT)),
    SERVER_PATH,
)
_PROXY = "proxy"
_MOST_LETTERS = 256
_VERBS: dict[str, Verb] = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}


def authorise(registry: Registry) -> Callable[[HTTPConnection], Awaitable[None]]:
    """Return the dependency that all routes of an application share."""
    kinds = {kind.plural: kind for kind in registry}

    def ask(connection: HTTPConnection) -> AccessRequest:
        template, path_params = str(connection.scope["route"].path), connection.path_params
        if template.startswith((PODS_EVERYWHERE, PODS)):  # sandboxes, by the name of pods
            template = template.replace("/pods", "/sandboxes").replace("/api/v1", PREFIX)
        if template in (*_SELF, *_IMAGES, *_OWN_RULES):
            return AccessRequest("self")
        if template in _APPLY:
            return AccessRequest("apply")
        if template == DISCOVERY:
            return AccessRequest("list", HOST.name, "")
        parts = template.removeprefix(f"{PREFIX}/").split("/") if template.startswith(f"{PREFIX}/") else []
        is_namespaced = parts[:2] == ["namespaces", "{namespace}"]
        parts = parts[2:] if is_namespaced else parts
        kind = kinds.get(parts[0]) if parts else None
        if kind is None or (is_namespaced and not kind.namespaced):
            return AccessRequest("admin", sub=template)
        namespace = path_params["namespace"] if is_namespaced else None if kind.namespaced else ""
        name = path_params.get("name", "") if parts[1:2] == ["{name}"] else ""
        sub = "/".join(parts[2:] if name else parts[1:])
        if sub.startswith(_PROXY):  # also a GET acts in the sandbox
            return AccessRequest("use", kind.name, namespace, name, _PROXY)
        return AccessRequest(_verb(connection, name, sub), kind.name, namespace, name, sub)

    async def check(connection: HTTPConnection) -> None:
        access_request = ask(connection)
        # Of a server, one tool is enough: the gateway decides each request.
        is_server = connection.scope["route"].path == SERVER_PATH
        (access.require_server if is_server else access.require)(access_request, registry)
        forwarding: Forwarding | None = connection.app.state.forwarding
        elsewhere = None if forwarding is None else await forwarding.find(connection, access_request)
        if is_work(access_request):
            await record(connection, access_request, elsewhere)
        if elsewhere is not None:
            raise elsewhere

    async def record(connection: HTTPConnection, access_request: AccessRequest, elsewhere: Elsewhere | None) -> None:
        if identity_of(connection.scope) is not None:  # the daemon that was asked has
            connection.state.record = _nothing
            return
        services: Services = connection.app.state.services
        write_record = partial(services.recorder.record_use, access_request, await _details(connection, access_request))
        template = connection.scope["route"].path
        if template in _RECORDED_AT_START and isinstance(connection, Request) and elsewhere is None:
            connection.state.record = write_record
        else:
            await run_in_threadpool(write_record)

    return check


def _nothing() -> None:
    """Record nothing."""


async def _command(connection: HTTPConnection, access_request: AccessRequest) -> list[str]:
    """Return the requested command, from the query or the body; empty if there is none."""
    if access_request.verb != "use" or access_request.sub not in _COMMANDS or not isinstance(connection, Request):
        return connection.query_params.getlist("command")
    try:
        body = await connection.json()  # cached from reading it for the route
    except ValueError:
        return []
    command = body.get("command") if isinstance(body, dict) else None
    return [str(word) for word in command] if isinstance(command, list) else []


async def _details(connection: HTTPConnection, access_request: AccessRequest) -> Mapping[str, Any]:
    """Return the audit details of a request."""
    if access_request.sub == _PROXY:
        return {"port": str(connection.path_params.get("port", ""))[:_MOST_LETTERS]}
    if access_request.sub.partition("/")[0] == _CONTEXTS:
        return await _context(connection)
    if access_request.sub not in _AGENT:
        return _program(await _command(connection, access_request))
    if access_request.verb != "use" or not isinstance(connection, Request):
        return {}
    try:
        body = await connection.json()  # cached from reading it for the route
    except ValueError:  # the route refuses it
        return {}
    if access_request.sub == "mcp":
        method = body.get("method", "") if isinstance(body, dict) else ""
        name_tool = audited_name if access_request.kind == MCP_SERVER.name else None
        return audit_details(tools_of_mcp(body), method if isinstance(method, str) else "", name_tool)
    return audit_details(tools_of_execute(body))


async def _context(connection: HTTPConnection) -> dict[str, Any]:
    """Return the audit details of a code context: its name, its language and the code's size, never the code."""
    details: dict[str, Any] = {}
    if name := connection.path_params.get("context"):
        details["context"] = str(name)[:_MOST_LETTERS]
    if not isinstance(connection, Request) or connection.scope["method"] != "POST":
        return details
    try:
        body = await connection.json()  # cached from reading it for the route
    except ValueError:
        return details
    if isinstance(body, dict):
        if isinstance(body.get("language"), str):
            details["language"] = body["language"][:_MOST_LETTERS]
        if isinstance(body.get("code"), str):
            details["characters"] = len(body["code"])
    return details


def _program(command: list[str]) -> dict[str, Any]:
    """Return the audit details of a command: the program, without arguments, which may be secret."""
    return {"program": command[0][:_MOST_LETTERS], "arguments": len(command) - 1} if command else {}


def _verb(connection: HTTPConnection, name: str, sub: str) -> Verb:
    if connection.scope["type"] == "websocket":
        return "use"
    if connection.scope["method"] in ("GET", "HEAD"):
        return "get" if name else "list"
    return "use" if sub else _VERBS.get(connection.scope["method"], "admin")
