"""An MCP server as the user's own process, without a sandbox: relayed, marked as such, and shown by the daemon."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from controller.cli.errors import CliError
from controller.cli.mcp.bridge import Hold
from paddock._client.server import Server

_HEADER = "Paddock-Unsandboxed"
_MARK = "paddock/isSandboxed"
_GRACE_SECONDS = 1.5  # after the end of the input: clients kill a server after two seconds


def run(server: Server, path: str, command: Sequence[str], env: Mapping[str, str], folder: str | None = None) -> int:
    """Relay between stdin and stdout and the program until it ends; return its exit code. Raises CliError.

    It starts in the folder; None: in that of this process. The daemon shows it as long as this process holds a
    connection.
    """
    try:
        child = subprocess.Popen(command, env=dict(env), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise CliError(
            f"{error.filename or command[0]}: {error.strerror}; install it, or wait for the engine"
        ) from error
    assert child.stdin is not None
    assert child.stdout is not None
    connection = Hold(server, path, headers={_HEADER: "true"})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: child.terminate())
    threading.Thread(target=_send, args=(sys.stdin.buffer, child.stdin, child), daemon=True).start()
    try:
        for line in child.stdout:
            sys.stdout.buffer.write(mark_line(line))
            sys.stdout.buffer.flush()
    except OSError:  # the client has gone
        child.terminate()
    finally:
        connection.close()
    return child.wait()


def mark_line(line: bytes) -> bytes:
    """Return a line of the program; a result says that it does not come from a sandbox."""
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError):
        return line
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        return line
    meta = result.get("_meta")
    result["_meta"] = {**(meta if isinstance(meta, dict) else {}), _MARK: False}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _send(source: BinaryIO, sink: Any, child: "subprocess.Popen[bytes]") -> None:
    """Pass the input on; at its end the program has a moment to end."""
    with suppress(OSError):
        for line in source:
            sink.write(line)
            sink.flush()
        sink.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_SECONDS)
        return
    child.terminate()
