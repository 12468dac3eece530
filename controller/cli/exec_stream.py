"""The client's side of a command over a WebSocket: frames of v5.channel.k8s.io, the first byte is the channel."""

import json
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from controller.cli.credentials import authorization, trusted
from controller.cli.errors import CliError, refusal
from controller.cli.server import Server, dial, unreachable
from controller.version import API_VERSION

_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3
_CLOSE_STDIN = b"\xff\x00"
_PIECE_BYTES = 1 << 15


def run(server: Server, namespace: str, name: str, query: Sequence[tuple[str, str]], *, with_stdin: bool) -> int:
    """Run a command and carry its streams; gives its exit code. CliError when it can't be run."""
    path = f"/apis/{API_VERSION}/namespaces/{quote(namespace, safe='')}/sandboxes/{quote(name, safe='')}/exec"
    with _open(server, f"{path}?{urlencode(query)}") as connection:
        if with_stdin:
            threading.Thread(target=_send, args=(connection, sys.stdin.buffer), name="stdin", daemon=True).start()
        return _receive(connection)


def _open(server: Server, path: str) -> ClientConnection:
    url = server.url.replace("http", "ws", 1) + path
    sock = dial(server) if server.socket else None
    options: dict[str, Any] = {"subprotocols": [Subprotocol(_PROTOCOL)], "max_size": None, "compression": None}
    options["additional_headers"] = authorization()
    if url.startswith("wss"):
        options["ssl"] = trusted()
    try:
        opened: ClientConnection = connect(url, sock=sock, proxy=None, **options)
    except InvalidStatus as error:
        raise refusal(_json(error.response.body), error.response.status_code) from error
    except (OSError, InvalidHandshake) as error:
        raise unreachable(server, str(error)) from error
    return opened


def _send(connection: ClientConnection, stdin: BinaryIO) -> None:
    """Pass stdin on until its end. The command may end first: then nobody takes the rest."""
    try:
        while data := stdin.read1(_PIECE_BYTES):  # type: ignore[attr-defined]
            connection.send(bytes((_STDIN,)) + data)
        connection.send(_CLOSE_STDIN)
    except ConnectionClosed:
        return


def _receive(connection: ClientConnection) -> int:
    streams = {_STDOUT: sys.stdout.buffer, _STDERR: sys.stderr.buffer}
    try:
        for frame in connection:
            if not isinstance(frame, bytes) or not frame:
                continue
            if frame[0] == _STATUS:
                return _exit_code(_json(frame[1:]))
            if stream := streams.get(frame[0]):
                stream.write(frame[1:])
                stream.flush()
    except ConnectionClosed as error:
        raise CliError(f"the connection broke: {error}; whether the command still runs is not known") from error
    raise CliError("the daemon ended the connection before the command did")


def _exit_code(status: Any) -> int:
    if isinstance(status, dict) and status.get("status") == "Success":
        return 0
    causes = (status or {}).get("details", {}).get("causes", [])
    codes = [int(each["message"]) for each in causes if each.get("reason") == "ExitCode"]
    if not codes:
        raise refusal(status, 500)
    return codes[0]


def _json(body: bytes | bytearray | None) -> Any:
    try:
        return json.loads(body or b"null")
    except ValueError:
        return None
