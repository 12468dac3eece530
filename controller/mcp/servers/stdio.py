"""The client of one stdio server: requests and answers over the streams of its process. Any thread may call it."""

import itertools
import json
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from controller.kinds.common.chunk import Chunk
from controller.mcp.servers.lines import Flood, Lines, Message
from controller.mcp.servers.notices import ENDED, KNOWN, TOOLS_CHANGED
from controller.mcp.text import decode
from controller.ports import StreamError
from controller.service.exec.activity import TrackedStream

OnProgress = Callable[[float, float | None, str], None]
OnNotice = Callable[[str, Mapping[str, Any]], None]
MOST_UNASKED = 50_000  # messages in a row that answer no request, within
_UNASKED_SECONDS = 60.0
_MOST_PENDING = 64
_MOST_QUEUED = 256
_MOST_QUEUED_BYTES = 8 << 20
_MOST_ID_LETTERS = 128  # of a request of the server's
_TAIL_BYTES = 4096
_TAIL_LINES = 8
_LEAST_SECRET_LINE = 8
_METHOD_NOT_FOUND = -32601
_UNREAD = (-32700, -32600)  # errors of a request whose id the server could not read
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.0)?")
_NO_REQUEST = "it answered with an id that no request has"
_MOST_VERSIONS = 20


class ServerGone(Exception):
    """The server's process ended, or can't be talked to; the message has its exit code and last lines.

    `why` is Paddock's own part of the message: what the server itself wrote must not be stored, it may be secret.
    """

    def __init__(self, why: str, last: str = "") -> None:
        super().__init__(f"{why}; its last lines: {last}" if last else why)
        self.why, self.last = why, last


class ServerRefused(Exception):
    """The server answered with an error of the protocol. `why` is Paddock's own words, the message the server's.

    `versions` are those that it says it speaks, if the error is about that.
    """

    def __init__(self, code: int, message: str, why: str = "", versions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.why = why or f"it answered with error {code}"
        self.versions = versions


class StdioClient:
    """Talks to one process. `start` opens its streams, given its standard input; it may block.

    The values of `hidden` are left out of what it says of the process. `on_notice` gets its notifications, but for
    progress, and ENDED at last.
    """

    def __init__(
        self,
        start: Callable[[Iterator[bytes]], TrackedStream],
        name: str,
        hidden: Sequence[str] = (),
        on_notice: OnNotice = lambda _method, _params: None,
    ) -> None:
        self._on_notice = on_notice
        self._lock, self._ids = threading.Lock(), itertools.count(1)
        self._input: queue.Queue[bytes | None] = queue.Queue(_MOST_QUEUED)
        self._input_bytes = 0  # of lines that the process has not taken
        self._pending: dict[int, Future[Any]] = {}
        self._lasting: set[int] = set()  # requests that are answered at their end only
        self._progress: dict[int, OnProgress] = {}
        self._stderr: deque[bytes] = deque()
        self._stderr_bytes = 0
        self._hidden = _hidden_parts(hidden)
        self._unasked, self._unasked_since = 0, time.monotonic()
        self._cut = False  # the beginning of standard error is lost
        self._gone, self._exit_code = False, ""
        self._end = ServerGone("")
        self.tools_changed = False  # it said so: list them again
        self.closed = threading.Event()
        self._stream = start(self._lines_in())
        threading.Thread(target=self._read, name=f"mcp {name}"[:60], daemon=True).start()

    @property
    def is_gone(self) -> bool:
        return self._gone

    @property
    def why(self) -> str:
        """Reason of its end, without anything that it wrote."""
        return self._end.why

    @property
    def is_busy(self) -> bool:
        """True while a request waits for its answer."""
        return len(self._pending) > len(self._lasting)

    def request(
        self, method: str, params: Mapping[str, Any], on_progress: OnProgress | None = None, *, lasting: bool = False
    ) -> tuple[int, Future[Any]]:
        """Send a request; return its id, and its result to come (ServerGone, ServerRefused).

        `lasting`: its answer comes at its end only, and nobody waits for it.

        Raises ServerGone.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._gone:
                raise ServerGone(self._end.why, self._end.last)
            if len(self._pending) >= _MOST_PENDING:
                raise ServerGone(f"{_MOST_PENDING} calls wait for its answers; wait for some")
            id_ = next(self._ids)
            self._pending[id_] = future
            if lasting:
                self._lasting.add(id_)
            if on_progress is not None:
                self._progress[id_] = on_progress
                params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": id_}}
        try:
            self._send({"jsonrpc": "2.0", "id": id_, "method": method, "params": dict(params)})
        except ServerGone:
            self._forget(id_)
            raise
        return id_, future

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification. Raises ServerGone."""
        self._send({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    def cancel(self, id_: int, reason: str) -> None:
        """Tell the server that nobody waits for this answer any more."""
        if self._forget(id_) is not None:
            with suppress(ServerGone):
                self.notify("notifications/cancelled", {"requestId": id_, "reason": reason})

    def close(self, why: str = "the session was ended") -> None:
        """End the process, and fail what waits for it."""
        self._fail(ServerGone(why))
        self._end_input()
        self._stream.close()

    def last_lines(self) -> str:
        """Return the end of what it wrote to standard error, as plain text."""
        text = decode(b"".join(list(self._stderr)))
        if self._cut:  # half a secret would not be found
            text = text.partition("\n")[2]
        return "\n".join(self.redacted(text)[-_TAIL_BYTES:].strip().splitlines()[-_TAIL_LINES:])

    def redacted(self, text: str) -> str:
        """Return a text of the process without the values of secrets."""
        for secret in self._hidden:
            text = text.replace(secret, "[secret]")
        return text

    def _send(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._input_bytes + len(line) > _MOST_QUEUED_BYTES:
                raise ServerGone("it does not read its input")
            try:
                self._input.put_nowait(line)
            except queue.Full:
                raise ServerGone("it does not read its input") from None
            self._input_bytes += len(line)

    def _end_input(self) -> None:
        """End the lines for the process. Those that it has not taken are dropped: there is always room for the end."""
        with self._lock:
            with suppress(queue.Empty):
                while True:
                    self._input.get_nowait()
            self._input.put_nowait(None)

    def _lines_in(self) -> Iterator[bytes]:
        while True:
            line = self._input.get()
            if line is None:
                return
            yield line
            with self._lock:
                self._input_bytes -= len(line)

    def _read(self) -> None:
        lines, why = Lines(), ""
        try:
            for chunk in self._stream:
                self._take(chunk, lines)
        except (StreamError, Flood) as error:
            why = str(error)
        finally:
            self._fail(self._end_error(why))
            self._end_input()
            with suppress(StreamError):
                self._stream.close()
            self.closed.set()
            self._on_notice(ENDED, {})

    def _take(self, chunk: Chunk, lines: Lines) -> None:
        if chunk.stream == "stdout":
            for message in lines.feed(chunk.data):
                self._receive(message)
        elif chunk.stream == "stderr":
            self._stderr.append(chunk.data)
            self._stderr_bytes += len(chunk.data)
            while self._stderr_bytes > _TAIL_BYTES and len(self._stderr) > 1:
                self._stderr_bytes -= len(self._stderr.popleft())
                self._cut = True
        elif chunk.stream == "exit":
            self._exit_code = chunk.data.decode()

    def _end_error(self, why: str) -> ServerGone:
        text = why or (f"it ended with exit code {self._exit_code}" if self._exit_code else "its connection ended")
        return ServerGone(text, self.last_lines())

    def _fail(self, end: ServerGone) -> None:
        with self._lock:
            if not self._gone:
                self._gone, self._end = True, end
            waiting = list(self._pending.values())
            self._pending = {}
            self._progress = {}
            self._lasting.clear()
        for future in waiting:
            with suppress(InvalidStateError):
                future.set_exception(ServerGone(self._end.why, self._end.last))

    def _forget(self, id_: int) -> Future[Any] | None:
        with self._lock:
            self._progress.pop(id_, None)
            self._lasting.discard(id_)
            return self._pending.pop(id_, None)

    def _forget_only(self) -> Future[Any] | None:
        """Forget the request that waits, and return it; None if several do, or none: an answer could be to any."""
        with self._lock:
            waiting = self._pending.keys() - self._lasting
        return self._forget(waiting.pop()) if len(waiting) == 1 else None

    def _receive(self, message: Message) -> None:
        now = time.monotonic()
        if now - self._unasked_since > _UNASKED_SECONDS:
            self._unasked, self._unasked_since = 0, now
        self._unasked += 1  # until an answer comes that somebody waits for
        if self._unasked > MOST_UNASKED:
            raise Flood(f"it wrote more than {MOST_UNASKED} messages that answer nothing")
        if "method" not in message:
            self._answer(message)
        elif "id" in message:
            self._answer_request(message)
        elif message["method"] == "notifications/progress":
            self._report(message.get("params"))
        else:
            self._take_notification(message["method"], message.get("params"))

    def _take_notification(self, method: Any, params: Any) -> None:
        if method == TOOLS_CHANGED:
            self.tools_changed = True
        if method in KNOWN:
            self._on_notice(method, params if isinstance(params, dict) else {})

    def _answer(self, message: Message) -> None:
        id_ = _number(message.get("id"))
        error = message.get("error")
        result = message.get("result")
        code = _number(error.get("code")) if isinstance(error, dict) else None
        waiting = self._forget(id_) if id_ is not None else None
        if id_ is None and (message.get("id") is not None or code in _UNREAD):
            waiting = self._forget_only()
        if waiting is None:
            return
        self._unasked = 0
        with suppress(InvalidStateError):
            if isinstance(error, dict):
                text = decode(str(error.get("message", "no reason given")).encode("utf-8", "replace"))
                data = error.get("data")
                versions = data.get("supported") if isinstance(data, dict) else None
                waiting.set_exception(ServerRefused(code or 0, self.redacted(text)[:2000], versions=_texts(versions)))
            elif id_ is None:
                waiting.set_exception(ServerRefused(0, _NO_REQUEST, _NO_REQUEST))
            elif isinstance(result, dict):
                waiting.set_result(result)
            else:
                waiting.set_exception(ServerRefused(0, "its answer is neither a result nor an error"))

    def _answer_request(self, message: Message) -> None:
        """Answer a request of the server. It may ask for nothing of the client's: no sampling, roots or questions."""
        id_ = message["id"]
        if type(id_) is not int and not (isinstance(id_, str) and len(id_) <= _MOST_ID_LETTERS):
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id_}
        if message["method"] == "ping":
            answer["result"] = {}
        else:
            text = "refused: servers in sandboxes get no sampling, roots or questions to the user"
            answer["error"] = {"code": _METHOD_NOT_FOUND, "message": text}
        with suppress(ServerGone):
            self._send(answer)

    def _report(self, params: Any) -> None:
        token = params.get("progressToken") if isinstance(params, dict) else None
        number = _number(token)
        with self._lock:
            report = self._progress.get(number) if number is not None else None
        done, total = (params.get("progress"), params.get("total")) if report else (None, None)
        if report is not None and isinstance(done, int | float):
            text = decode(str(params.get("message", "")).encode("utf-8", "replace"))[:500]
            report(float(done), float(total) if isinstance(total, int | float) else None, text)


def _number(value: Any) -> int | None:
    """Return a whole number, which some servers write as "1" or 1.0; None for anything else."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    return int(value.partition(".")[0]) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _texts(value: Any) -> Sequence[str]:
    """Return the texts of a list."""
    return [text for text in value[:_MOST_VERSIONS] if isinstance(text, str)] if isinstance(value, list) else ()


def _hidden_parts(values: Sequence[str]) -> Sequence[str]:
    """Return the texts to leave out: each value, and the longer lines of one with several; the longest first."""
    whole_values = {decode(secret.encode("utf-8", "replace")).strip() for secret in values}
    lines = {
        line.strip()
        for secret in whole_values
        for line in secret.splitlines()
        if len(line.strip()) >= _LEAST_SECRET_LINE
    }
    return sorted((whole_values | lines) - {""}, key=len, reverse=True)
