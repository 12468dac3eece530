# Generated from _async/process.py by `python -m tests.sdk.unasync`: change that one.
"""Commands of a sandbox: running ones, and ones in the background."""

import json
import time
from collections.abc import Mapping
from typing import Any

from paddock._client.channels import (
    CLOSE_STDIN,
    PIECE_BYTES,
    RESIZE,
    SIGNAL,
    STATUS,
    STDIN,
    STREAMS,
    causes_of,
    exit_code_of,
)
from paddock._client.connection import segment
from paddock._client.errors import ClientError, refusal
from paddock._models import MAX_OUTPUT_BYTES, CommandResult, Decoder, KeptStreams, Output, WaitTimedOut
from paddock._transport.blocking import Socket, Transport, pause

_POLL_SECONDS = 0.2
_RUNNING = "Running"
_KILLED = 128 + 9  # SIGKILL


class Process:
    """A running command: iterate over its output until it ends. Leaving the `with` kills it, as `kill` does.

        with sandbox.start("for i in 1 2 3; do echo $i; sleep 1; done") as process:
            for output in process:
                print(output.stream, output.text)
        print(process.exit_code)

    `exit_code` is None until the iteration ends; then `timed_out` tells if the timeout killed it, and
    `duration_seconds` how long it took, as measured here.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._decoder = Decoder()
        self.exit_code: int | None = None
        self.timed_out = False
        self.duration_seconds: float | None = None
        self._started = time.monotonic()
        self._killed = False
        self._first: bytes | str | None = None

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __iter__(self) -> "Process":
        return self

    def wait_started(self) -> None:
        """Wait until it has started; a suspended sandbox is resumed first. Raises as iterating does."""
        if self._first is None and self.exit_code is None:
            self._first = self._socket.receive()

    def __next__(self) -> Output:
        while self.exit_code is None:
            frame, self._first = self._first, None
            try:
                frame = frame if frame is not None else self._socket.receive()
            except ClientError:
                if not self._killed:
                    raise
                self._end(_KILLED)
                break
            if not isinstance(frame, bytes) or not frame:
                continue
            if frame[0] == STATUS:
                self._read_status(frame[1:])
            elif frame[0] in STREAMS and len(frame) > 1:
                return self._decoder.output(STREAMS[frame[0]], frame[1:])
        raise StopIteration

    def wait(self, *, max_output_bytes: int = MAX_OUTPUT_BYTES) -> CommandResult:
        """Wait for its end; return the output that was not iterated over yet, with the exit code.

        Of each stream at most `max_output_bytes` are kept: head and tail.
        """
        streams = KeptStreams(max_output_bytes)
        for output in self:
            streams.add(output.stream, output.data)
        return streams.result(self.exit_code or 0, timed_out=self.timed_out, duration_seconds=self.duration_seconds)

    def write(self, data: str | bytes) -> bool:
        """Write to stdin, for a command started with `stdin=True`. False: it has ended."""
        raw = data.encode() if isinstance(data, str) else data
        for at in range(0, len(raw), PIECE_BYTES):
            if not self._socket.send(bytes((STDIN,)) + raw[at : at + PIECE_BYTES]):
                return False
        return True

    def close_stdin(self) -> bool:
        """Close stdin."""
        return self._socket.send(CLOSE_STDIN)

    def feed(self, data: str | bytes) -> None:
        """Write to stdin, and close it."""
        if self.write(data):
            self.close_stdin()

    def resize(self, rows: int, columns: int) -> bool:
        """Set the size of the command's terminal."""
        size = {"Width": columns, "Height": rows}
        return self._socket.send(bytes((RESIZE,)) + json.dumps(size).encode())

    def signal(self, name: str) -> bool:
        """Send a signal, such as `INT`, to the command and its children."""
        return self._socket.send(bytes((SIGNAL,)) + json.dumps({"signal": name}).encode())

    def kill(self) -> None:
        """Kill it, unless it has ended, and close the connection. Its exit code is 137 then, as after SIGKILL.

        Any thread may call it: an iteration ends, and `wait` returns the output that had arrived.
        """
        self._killed = True
        self._socket.close()

    def _read_status(self, body: bytes) -> None:
        try:
            status = json.loads(body)
        except ValueError:
            raise refusal(None, 500) from None
        self.timed_out = "TimedOut" in causes_of(status)
        self._end(exit_code_of(status))

    def _end(self, exit_code: int) -> None:
        self.duration_seconds = time.monotonic() - self._started
        self.exit_code = exit_code


class BackgroundCommand:
    """A command that outlives this program. It ends with its sandbox.

    `state` is Running, Exited, TimedOut, Killed or Lost; `refresh` reads it again.

        server = sandbox.background("python3 -m http.server 8000")
        print(server.log())
        server.kill()
    """

    def __init__(self, transport: Transport, sandbox_path: str, document: Mapping[str, Any]) -> None:
        self._transport, self._sandbox_path = transport, sandbox_path
        self.id: str = document["id"]
        self._found = document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @property
    def command(self) -> list[str]:
        """The program and its arguments."""
        return list(self._found["command"])

    @property
    def state(self) -> str:
        """State when it was read last."""
        return str(self._found["state"])

    @property
    def running(self) -> bool:
        """True if it ran when it was read last."""
        return self.state == _RUNNING

    @property
    def exit_code(self) -> int | None:
        """Exit code; None if it runs, or if it was lost."""
        code: int | None = self._found.get("exitCode")
        return code

    def refresh(self) -> "BackgroundCommand":
        """Read its state again."""
        self._found = self._transport.request("GET", f"{self._sandbox_path}/execs/{segment(self.id)}")
        return self

    def wait(self, timeout: float = 300.0) -> CommandResult:
        """Wait for its end; return its output and exit code. Raises WaitTimedOut.

        `duration_seconds` is None for a command that was lost.
        """
        deadline = time.monotonic() + timeout
        while (self.refresh()).running:
            if time.monotonic() >= deadline:
                raise WaitTimedOut(f"the command {self.id} still runs after {timeout:g} s; wait longer, or kill it")
            pause(_POLL_SECONDS)
        code = -1 if self.exit_code is None else self.exit_code
        seconds: float | None = self._found.get("durationSeconds")
        return CommandResult(code, self.log(), "", seconds, timed_out=self.state == "TimedOut")

    def log(self) -> str:
        """Return stdout and stderr so far; of long output head and tail."""
        path = f"{self._sandbox_path}/execs/{segment(self.id)}/log"
        return (self._transport.download(path, {})).decode(errors="replace")

    def kill(self) -> "BackgroundCommand":
        """Kill all of its processes. Its log is kept."""
        self._found = self._transport.request("POST", f"{self._sandbox_path}/execs/{segment(self.id)}/kill")
        return self
