"""WebSockets to the daemon: what an exec and a forwarded port speak over."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from controller.client.connection import full_path
from controller.client.credentials import authorization, trusted
from controller.client.errors import refusal
from controller.client.server import Server, dial, unreachable

_CLOSE_SECONDS = 2.0


def open_websocket(
    server: Server, path: str, query: Sequence[tuple[str, str]] | Mapping[str, str], *, protocol: str
) -> ClientConnection:
    """A WebSocket at `path` (relative to the API version). Raises Unreachable, and Refused where the daemon says no."""
    url = f"{server.url.replace('http', 'ws', 1)}{full_path(path)}?{urlencode(query)}"
    sock = dial(server) if server.socket else None
    options: dict[str, Any] = {"subprotocols": [Subprotocol(protocol)], "max_size": None, "compression": None}
    options["additional_headers"] = authorization()
    if url.startswith("wss"):
        options["ssl"] = trusted()
    # No pings: a side that waits for its slow reader answers none, and is not dead.
    options |= {"ping_interval": None, "close_timeout": _CLOSE_SECONDS}
    try:
        # Entered here, and left by whoever closes it: newer versions of the library insist on `with`.
        opened: ClientConnection = connect(url, sock=sock, proxy=None, **options).__enter__()
    except InvalidStatus as error:
        raise refusal(json_or_none(error.response.body), error.response.status_code) from error
    except (OSError, InvalidHandshake) as error:
        raise unreachable(server, str(error)) from error
    return opened


def json_or_none(body: bytes | bytearray | None) -> Any:
    """The JSON in a body or frame that should be some."""
    try:
        return json.loads(body or b"null")
    except ValueError:
        return None
