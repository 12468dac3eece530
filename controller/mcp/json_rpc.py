"""Bodies of MCP's requests: one JSON-RPC message each. What is none is refused here, before the SDK sees it.

The SDK answers such a body with its validator's own report, and never answers a request whose id is null or a fraction.
"""

import json
from collections.abc import Sequence
from typing import Any

from starlette.types import Message, Receive

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
_MOST_READ_BYTES = 64 << 10  # of a larger one only the first character
_ONE = "send one JSON-RPC 2.0 message in a request"


async def body_of(receive: Receive) -> Sequence[Message]:
    """Return the messages of a request's body."""
    body: list[Message] = []
    while not body or body[-1].get("more_body", False):
        body.append(await receive())
    return body


def replayed(body: Sequence[Message], receive: Receive) -> Receive:
    """Return a `receive` that begins with these messages again."""
    pending = list(body)

    async def again() -> Message:
        return pending.pop(0) if pending else await receive()

    return again


def refusal_of(body: Sequence[Message]) -> dict[str, Any] | None:
    """Return the answer to a body that is no JSON-RPC message; None: it may be one."""
    if any(event["type"] == "http.disconnect" for event in body):
        return None
    text = b"".join(event.get("body", b"") for event in body)
    if len(text) > _MOST_READ_BYTES:
        first = text[:_MOST_READ_BYTES].lstrip()[:1]
        return None if first == b"{" else _error(INVALID_REQUEST, _fault([] if first == b"[" else None))
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return _error(PARSE_ERROR, f"the body is not valid JSON; {_ONE}")
    fault = _fault(message)
    return _error(INVALID_REQUEST, fault, message) if fault else None


def _fault(message: Any) -> str:
    if isinstance(message, list):
        return f"the body is a batch, which MCP does not have; {_ONE}"
    if not isinstance(message, dict):
        return f"the body is no object; {_ONE}"
    if message.get("jsonrpc") != "2.0":
        return 'jsonrpc: must be "2.0"'
    if "id" in message and not _is_id(message["id"]):
        return "id: must be a text or a whole number; leave it out of a notification"
    if "result" in message or "error" in message:
        return ""
    if not isinstance(message.get("method"), str):
        return "method: must be the name of one, such as `tools/list`"
    return "" if isinstance(message.get("params") or {}, dict) else "params: must be an object"


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _error(code: int, text: str, message: Any = None) -> dict[str, Any]:
    id_ = message.get("id") if isinstance(message, dict) else None
    return {"jsonrpc": "2.0", "id": id_ if _is_id(id_) else None, "error": {"code": code, "message": text}}
