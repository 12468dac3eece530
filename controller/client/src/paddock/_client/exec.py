"""Commands in a sandbox: run to their end, or streamed over a WebSocket.

Frames follow v5.channel.k8s.io: the first byte is the channel.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed

from paddock._client.command import as_json, as_query, checked_command
from paddock._client.connection import Connection
from paddock._client.errors import ClientError, refusal
from paddock._client.websocket import WebSocket, json_or_none, open_websocket

_PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, SIGNAL = 0, 1, 2, 3, 4, 5  # channels
CLOSE_STDIN = b"\xff\x00"
STREAMS = {STDOUT: "stdout", STDERR: "stderr"}
PIECE_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class Output:
    """A chunk of output; `stream` is stdout or stderr."""

    stream: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Completed:
    """Result of a command.

    Long output is `truncated` to its head and tail, with a line between that counts the rest.
    `timed_out`: the command was killed at its timeout; its exit code is 124.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_seconds: float
    truncated: bool
    timed_out: bool


class Running(Iterator[Output]):
    """A running command: iterate over its output until it ends. Disconnecting or closing kills the command.

    `exit_code` is None until the iteration ends; then `timed_out` tells if the timeout killed it. Iterating raises
    ClientError when the connection breaks. Other methods may be called from any thread.
    """

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self.exit_code: int | None = None
        self.timed_out = False
        self._first: bytes | str | None = None

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_begun(self) -> None:
        """Wait until it has started; a suspended sandbox is resumed first. Raises as iterating does."""
        if self._first is None:
            self._first = self._receive()

    def __next__(self) -> Output:
        while self.exit_code is None:
            self.wait_begun()
            frame, self._first = self._first, None
            if not isinstance(frame, bytes) or not frame:
                continue
            if frame[0] == STATUS:
                status = json_or_none(frame[1:])
                self.timed_out = "TimedOut" in causes_of(status)
                self.exit_code = exit_code_of(status)
            elif frame[0] in STREAMS and len(frame) > 1:
                return Output(STREAMS[frame[0]], frame[1:])
        raise StopIteration

    def _receive(self) -> bytes | str:
        try:
            return self._websocket.recv()
        except ConnectionClosed as error:
            raise ClientError(f"the connection broke: {error}; the command may still run") from error

    def write(self, data: bytes) -> bool:
        """Write to stdin; block while the command does not read. False: it has ended."""
        return self._send(bytes((STDIN,)) + data)

    def end_of_input(self) -> bool:
        """Close stdin."""
        return self._send(CLOSE_STDIN)

    def resize(self, rows: int, columns: int) -> bool:
        """Set the size of the command's terminal."""
        return self._send(bytes((RESIZE,)) + json.dumps({"Width": columns, "Height": rows}).encode())

    def signal(self, name: str) -> bool:
        """Send a signal, such as `INT`, to the command and its children."""
        return self._send(bytes((SIGNAL,)) + json.dumps({"signal": name}).encode())

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Write all chunks, then close stdin; stop early when the command has ended.

        If the iterable fails, the command is killed: partial input must not look complete.
        """
        try:
            if all(self.write(piece) for piece in pieces):
                self.end_of_input()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, which kills the command."""
        self._websocket.close()

    def _send(self, frame: bytes) -> bool:
        try:
            self._websocket.send(frame)
        except ConnectionClosed:
            return False
        return True


def start(
    connection: Connection,
    path: str,
    command: Sequence[str],
    *,
    stdin: bool = False,
    tty: bool = False,
    size: tuple[int, int] | None = None,
    env: Mapping[str, str] | None = None,
    working_dir: str = "",
    timeout_seconds: float | None = None,
) -> Running:
    """Start a command in the sandbox at `path`. Raises Refused, and TypeError if the command is not a list."""
    query = [("command", argument) for argument in checked_command(command, "start")]
    query += as_query(env)
    query += [("stdin", "true")] if stdin else []
    query += [("tty", "true")] if tty else []
    query += [("rows", str(size[0])), ("columns", str(size[1]))] if tty and size else []
    query += [("workingDir", working_dir)] if working_dir else []
    query += [("timeoutSeconds", f"{timeout_seconds:g}")] if timeout_seconds is not None else []
    return Running(open_websocket(connection.server, f"{path}/exec", query, protocol=_PROTOCOL))


def run(
    connection: Connection,
    path: str,
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    working_dir: str = "",
    timeout_seconds: float | None = None,
) -> Completed:
    """Run a command in the sandbox at `path` to its end. Raises Refused, and TypeError if the command is not a list."""
    request = {
        "command": checked_command(command, "exec"),
        "env": as_json(env),
        "workingDir": working_dir,
        "stdin": base64.b64encode(stdin).decode(),
        "encoding": "base64",
        "timeoutSeconds": timeout_seconds,
    }
    done = connection.request("POST", f"{path}/exec", json=request)
    return Completed(
        exit_code=done["exitCode"],
        stdout=base64.b64decode(done["stdout"]),
        stderr=base64.b64decode(done["stderr"]),
        duration_seconds=done["durationSeconds"],
        truncated=done["truncated"],
        timed_out=done["timedOut"],
    )


def exit_code_of(status: Any) -> int:
    """Return the exit code in a final Status. Raises Refused if the command did not run."""
    if isinstance(status, dict) and status.get("status") == "Success":
        return 0
    code = causes_of(status).get("ExitCode")
    if code is None:
        raise refusal(status, int((status or {}).get("code", 500)))
    return int(code)


def causes_of(status: Any) -> dict[str, str]:
    """Return the messages by reason."""
    causes = (status or {}).get("details", {}).get("causes", [])
    return {str(cause.get("reason")): str(cause.get("message")) for cause in causes}
