"""Destination of a message: the sandbox whose host's daemon alone can answer it."""

from collections.abc import Mapping
from typing import Any

from controller.mcp.resources import MOST_URIS, call_of, target_of
from controller.mcp.sandboxes import by_container, may_be_container, parse_id
from controller.mcp.tool import Tool
from controller.mcp.tools.registry import NAMES, TOOLS
from controller.service.services import Services

_NAMING = ("id", "container", "name", "sandbox")  # arguments that name a tool's sandbox


def sandbox_of(services: Services, message: Any, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the sandbox that a JSON-RPC message works in; None: any daemon answers.

    `namespace` is that of arguments that name none. Reads the store if a container is named. The message is not valid
    yet, and the caller's rights are not checked. A subscription goes to the host of the first resource that is polled.
    """
    if isinstance(message, Mapping) and message.get("method") == "subscriptions/listen":
        return _followed_sandbox(message.get("params"))
    tool, arguments = _call(message)
    if tool is None or not tool.at_host or not isinstance(arguments, Mapping):
        return None
    text = next((arguments[key] for key in _NAMING if arguments.get(key)), None)
    place = arguments.get("namespace") or namespace
    if not isinstance(text, str) or not isinstance(place, str):
        return None
    sandbox = parse_id(text, place)
    if sandbox is None or not may_be_container(sandbox[1]):
        return sandbox
    return sandbox[0], by_container(services, *sandbox)


def _followed_sandbox(params: Any) -> tuple[str, str] | None:
    """Return the first sandbox whose logs, files or metrics are to be followed."""
    notifications = params.get("notifications") if isinstance(params, Mapping) else None
    uris = notifications.get("resourceSubscriptions") if isinstance(notifications, Mapping) else None
    targets = (target_of(str(uri)) for uri in (uris if isinstance(uris, list) else ())[:MOST_URIS])
    return next(
        ((target.namespace, target.name) for target in targets if target is not None and target.subresource), None
    )


def _call(message: Any) -> tuple[Tool | None, Any]:
    """Return the tool that the message calls, and its arguments."""
    params = message.get("params") if isinstance(message, Mapping) else None
    if not isinstance(params, Mapping):
        return None, None
    match message.get("method"):
        case "tools/call":
            return TOOLS.get(NAMES.get(str(params.get("name")), "")), params.get("arguments")
        case "resources/read":
            target = target_of(str(params.get("uri")))
            return call_of(target) if target else (None, None)
        case _:
            return None, None
