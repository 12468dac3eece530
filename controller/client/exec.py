"""Commands in a sandbox: frames of v5.channel.k8s.io over a WebSocket, the first byte is the channel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from controller.client.connection import Connection
from controller.client.errors import ClientError, refusal
from controller.client.websocket import json_or_none, open_websocket

_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3
_CLOSE_STDIN = b"\xff\x00"
_STREAMS = {_STDOUT: "stdout", _STDERR: "stderr"}
PIECE_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of what a command writes; `stream` is stdout or stderr."""

    stream: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Running(Iterator[Output]):
    """A command that runs: iterate for its output, to its end. Leaving it, or closing it, kills the command.

    `exit_code` is None until the iteration has ended. Iterating raises ClientError when the connection breaks.
    """

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket
        self.exit_code: int | None = None

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Output:
        while self.exit_code is None:
            frame = self._receive()
            if not isinstance(frame, bytes) or not frame:
                continue
            if frame[0] == _STATUS:
                self.exit_code = _exit_code(json_or_none(frame[1:]))
            elif frame[0] in _STREAMS:
                return Output(_STREAMS[frame[0]], frame[1:])
        raise StopIteration

    def _receive(self) -> bytes | str:
        try:
            return self._websocket.recv()
        except ConnectionClosed as error:
            raise ClientError(f"the connection broke: {error}; whether the command still runs is not known") from error

    def write(self, data: bytes) -> bool:
        """Pass on some of stdin; waits while the command does not read. False: it has ended, nobody takes more."""
        return self._send(bytes((_STDIN,)) + data)

    def end_of_input(self) -> bool:
        """Close its stdin."""
        return self._send(_CLOSE_STDIN)

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Write all of these, then close stdin; stops early when the command has ended.

        Where the pieces fail, the command is let go of: half of the input must not look like all of it.
        """
        try:
            if all(self.write(each) for each in pieces):
                self.end_of_input()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of it. From any thread."""
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
    env: Mapping[str, str] | None = None,
    working_dir: str = "",
    timeout_seconds: float | None = None,
) -> Running:
    """Start a command in the sandbox at `path`. Raises Refused where the daemon says no."""
    query = [("command", each) for each in command]
    query += [("env", f"{name}={value}") for name, value in (env or {}).items()]
    query += [("stdin", "true")] if stdin else []
    query += [("workingDir", working_dir)] if working_dir else []
    query += [("timeoutSeconds", f"{timeout_seconds:g}")] if timeout_seconds is not None else []
    return Running(open_websocket(connection.server, f"{path}/exec", query, protocol=_PROTOCOL))


def _exit_code(status: Any) -> int:
    if isinstance(status, dict) and status.get("status") == "Success":
        return 0
    causes = (status or {}).get("details", {}).get("causes", [])
    codes = [int(each["message"]) for each in causes if each.get("reason") == "ExitCode"]
    if not codes:
        raise refusal(status, 500)
    return codes[0]
