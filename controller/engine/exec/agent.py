"""ports.Agents: HTTP/1.1 with the agents of sandboxes, over kept connections within their network namespaces.

An agent has its sandbox's uid, and anything in the sandbox may listen in its place. So nothing of an answer is trusted:
its head, framing, size and time are bounded, and what does not fit is an AgentError that names the sandbox.
"""

import base64
import contextlib
import json
import re
import secrets
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import h11

from controller.engine.exec.command import TIMED_OUT, Escaped, signal_number
from controller.engine.kernel.kill import MARK, Killer, Target, signal_group, ticks_now
from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import Container
from controller.kinds.runtime.agent_call import AgentRequest, LeftExec
from controller.ports import AgentError, ExecStream, PortForwarder, StreamError

_KEPT = 4  # idle connections of one container
_IDLE_SECONDS = 30.0
_SWEEP_SECONDS = 5.0
_HELLO_SECONDS = 3.0  # for a listener to say that it takes a request
_PROVEN_SECONDS = 1.0
_START_SECONDS = 30.0  # for a command to start, as the engine's
_DRAIN_SECONDS = 1.0
_KILL_SECONDS = 5.0  # for an agent that takes the request to kill a command
_HEAD_START_SECONDS = 1.0  # of the agent before the host's kill: it alone also finds what has shed its mark
_HEAD_BYTES, _INTERIM, _MOST_STATUS = 16 << 10, 4, 599
_PIECE_BYTES = 64 << 10
_FRAME = struct.Struct(">BxxxL")
_FRAME_BYTES = 1 << 20
_LISTING_BYTES = 8 << 20
_SPARE_SECONDS = 5.0
_MARK = re.compile("[0-9a-f]{16}")
_STREAMS = {1: "stdout", 2: "stderr"}
_EXIT, _EXIT_BYTES = 3, 3
_Key = tuple[str, int]


class _Link:
    """One connection, read by h11 with bounds. One thread uses it; any thread may cut it."""

    def __init__(self, sock: socket.socket, subject: str) -> None:
        self.sock, self._subject = sock, subject
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._deadline: float | None = None
        self._at_end = False
        self.idle_since = float("-inf")

    def allow(self, seconds: float | None) -> None:
        """Set the time for all that follows; None: no limit."""
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def send(self, *events: h11.Event) -> None:
        """Send all of it. Raises AgentError."""
        data = b"".join(self._http.send(event) or b"" for event in events)
        with self._translated():
            self.sock.settimeout(self._remaining())
            self.sock.sendall(data)

    def next_event(self) -> Any:
        """Return the next part of an answer. Raises AgentError."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = self._read()
                self._at_end = not data
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            if self._at_end:
                message = f"the agent of {self._subject} ended the connection before its answer"
                raise AgentError("NoAnswer", message) from error
            raise self.bad(f"something that is not HTTP ({error})") from error
        return event

    def _read(self) -> bytes:
        with self._translated():
            self.sock.settimeout(self._remaining())
            return self.sock.recv(_PIECE_BYTES)

    def bad(self, what: str) -> AgentError:
        """Return the error of an answer that is none."""
        return AgentError("BadAnswer", f"what listens on the agent's port in {self._subject} answered {what}")

    def cut_short(self) -> AgentError:
        """Return the error of an answer that was ended before it was complete."""
        return AgentError("NoAnswer", f"the answer of the agent of {self._subject} was ended before it was complete")

    def renew(self) -> bool:
        """Make it ready for the next request. Return False if it can take none."""
        if (self._http.our_state, self._http.their_state) != (h11.DONE, h11.DONE):
            return False
        self._http.start_next_cycle()
        return self.quiet

    @property
    def quiet(self) -> bool:
        """True if nothing has come, not even its end: then it can be used again."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLRDHUP)
        return not self._http.trailing_data[0] and not poll.poll(0)

    def cut(self) -> None:
        """End both directions; a blocked read returns at once."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()

    def _remaining(self) -> float | None:
        if self._deadline is None:
            return None
        if (seconds_left := self._deadline - time.monotonic()) <= 0:
            raise TimeoutError
        return seconds_left

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise AgentError("TimedOut", f"the agent of {self._subject} did not answer in time") from error
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise AgentError("NoAnswer", f"the connection to the agent of {self._subject} broke: {reason}") from error


class _Answer:
    """ports.AgentAnswer: its head is read on demand, then its body piece by piece. One thread reads it."""

    def __init__(self, link: _Link, early: h11.Response | None, done: Callable[[_Link, bool], None]) -> None:
        """`early` is a head that has been read already."""
        self._link, self._early, self._done = link, early, done
        self._over = self._is_complete = False
        self._reading, self._ending = threading.Lock(), threading.Lock()

    def head(self) -> tuple[int, Mapping[str, str]]:
        """Wait for its head; return status and headers. Raises AgentError."""
        with self._guarded():
            response = self._early or self._response()
            if response.status_code > _MOST_STATUS:
                raise self._link.bad(f"{response.status_code}, which is not a status of HTTP")
            return response.status_code, {
                name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers
            }

    def read(self) -> bytes:
        """Return a piece of the body, b"" at its end. Raises AgentError."""
        with self._guarded():
            if self._is_complete:
                return b""
            if self._over:
                raise self._link.cut_short()
            event = self._link.next_event()
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if not isinstance(event, h11.EndOfMessage):
                raise self._link.cut_short()
            self._is_complete = True
            self._end(keep=True)
            return b""

    def allow(self, seconds: float | None) -> None:
        """Set the time for the rest of it."""
        self._link.allow(seconds)

    def close(self) -> None:
        """End it, from any thread; what was called is cancelled unless it has ended."""
        with self._ending:  # once it is over, its connection may be another's
            if not self._over:
                self._link.cut()
        if self._reading.acquire(blocking=False):  # else its reader notices the cut
            try:
                self._end(keep=False)
            finally:
                self._reading.release()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        with self._reading:
            try:
                yield
            except BaseException:
                self._end(keep=False)
                raise

    def _response(self) -> h11.Response:
        for _ in range(_INTERIM):
            event = self._link.next_event()
            if isinstance(event, h11.Response):
                return event
        raise self._link.bad("with beginnings alone")

    def _end(self, *, keep: bool) -> None:
        with self._ending:
            over, self._over = self._over, True
        if not over:
            self._done(self._link, keep)


class AgentConnections:
    """ports.Agents over the TCP ports of containers. Without a `killer` an exec's end relies on the agent alone."""

    def __init__(self, ports: PortForwarder, killer: Killer | None = None) -> None:
        self._ports, self._killer = ports, killer
        self._lock = threading.Lock()
        self._idle: dict[_Key, deque[_Link]] = {}
        self._sweeping = False

    def ask(self, container: Container, port: int, request: AgentRequest, *, seconds: float | None) -> _Answer:
        """See ports.Agents."""
        link = self._link(container, port)
        try:
            head = self._submit(link, request, seconds)
        except BaseException:
            link.close()
            raise
        return self._answer(container, link, head)

    def exec(
        self,
        container: Container,
        port: int,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        working_dir: str = "",
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
        escaped: Escaped | None = None,
        label: str = "",
    ) -> ExecStream:
        """See ports.Agents."""
        target = Target(container.id, container.pid, 0, secrets.token_hex(8), ticks_now())
        body: dict[str, object] = {
            "command": list(command),
            "env": {**env, MARK: target.mark},
            "cwd": working_dir,
            "id": target.mark,
        }
        if stdin:
            body["stdin"] = base64.b64encode(stdin).decode()
        if label:
            # Its time limit is this daemon's to enforce; without one it is the agent's.
            body["keep"] = {"label": label, "seconds": timeout_seconds + _SPARE_SECONDS if timeout_seconds else 0}
        return self._opened(container, port, "/exec", body, target, timeout_seconds, escaped, lasts=bool(label))

    def orphans(self, container: Container, port: int) -> Sequence[LeftExec]:
        """See ports.Agents."""
        with contextlib.closing(
            self.ask(container, port, AgentRequest("GET", "/exec", {}), seconds=_KILL_SECONDS)
        ) as answer:
            status, _ = answer.head()
            data = bytearray()
            while (piece := answer.read()) and len(data) <= _LISTING_BYTES:
                data += piece
        if status in (404, 405):  # it is older
            return ()
        return left_execs(bytes(data)) if status == 200 else ()

    def join(self, container: Container, port: int, id_: str) -> ExecStream:
        """See ports.Agents."""
        target = Target(container.id, container.pid, 0, id_, ticks_now())
        return self._opened(container, port, "/exec/join", {"id": id_}, target, None, None, lasts=True)

    def _opened(
        self,
        container: Container,
        port: int,
        path: str,
        body: Mapping[str, object],
        target: Target,
        timeout_seconds: float | None,
        escaped: Escaped | None,
        *,
        lasts: bool,
    ) -> ExecStream:
        """Send a request whose answer is the output of a command. `lasts`: it outlives its connection."""
        link = self._link(container, port)
        try:
            request = AgentRequest("POST", path, {"content-type": "application/json"}, json.dumps(body).encode())
            if self._submit(link, request, _START_SECONDS) is not None:
                raise AgentError("NotTaken", f"the agent of {_subject(container)} takes no commands of this form")
        except BaseException:
            link.close()
            raise
        answer = self._answer(container, link)
        status, _ = answer.head()
        if status != 200:
            answer.close()
            # It has not begun: the engine's own exec says why.
            raise AgentError("Refused", f"the agent of {_subject(container)} does not start it ({status})")
        answer.allow(None)
        kill = partial(self._kill, container, port, target.mark)
        return _AgentExec(
            answer,
            self._killer,
            kill=kill,
            target=target,
            timeout_seconds=timeout_seconds,
            escaped=escaped,
            subject=_subject(container),
            lasts=lasts,
        )

    def _kill(self, container: Container, port: int, mark: str) -> bool:
        """Have the agent kill a command with all its descendants. False if it does not say that none is left."""
        body, headers = json.dumps({"id": mark}).encode(), {"content-type": "application/json"}
        request = AgentRequest("POST", "/exec/kill", headers, body)
        try:
            with contextlib.closing(self.ask(container, port, request, seconds=_KILL_SECONDS)) as answer:
                status, _ = answer.head()
                while answer.read():
                    pass
        except AgentError:
            return False
        # 404: it has ended meanwhile, and what it left is the first process's, where the killer counts it.
        return status in (200, 404)

    def _submit(self, link: _Link, request: AgentRequest, seconds: float | None) -> h11.Response | None:
        """Send a request; return the head of its answer if that has come already. Raises AgentError.

        A connection that did not answer just now has to say first that it takes the body: before, nothing can begin.
        """
        body = (h11.Data(data=request.body), h11.EndOfMessage())
        if not request.body or time.monotonic() - link.idle_since < _PROVEN_SECONDS:
            link.allow(seconds)
            link.send(_head(request), *body)
            return None
        link.allow(_HELLO_SECONDS)
        try:
            link.send(_head(replace(request, headers={**request.headers, "expect": "100-continue"})))
            event = link.next_event()
        except AgentError as error:
            raise AgentError("NotTaken", str(error)) from error
        link.allow(seconds)
        if isinstance(event, h11.Response):
            return event
        link.send(*body)
        return None

    def _link(self, container: Container, port: int) -> _Link:
        key = container.id, container.pid
        while True:
            with self._lock:
                idle_links = self._idle.get(key)
                link = idle_links.pop() if idle_links else None
            if link is None:
                break
            if link.quiet:
                return link
            link.close()
        try:
            sock = self._ports.connect(container, port)
        except StreamError as error:
            raise AgentError("NotListening", f"the agent of {_subject(container)} does not answer: {error}") from error
        return _Link(sock, _subject(container))

    def _answer(self, container: Container, link: _Link, head: h11.Response | None = None) -> _Answer:
        return _Answer(link, head, lambda link, keep: self._give(container, link, keep=keep))

    def _give(self, container: Container, link: _Link, *, keep: bool) -> None:
        if not keep or not link.renew():
            link.close()
            return
        link.idle_since = time.monotonic()
        with self._lock:
            idle_links = self._idle.setdefault((container.id, container.pid), deque())
            idle_links.append(link)
            surplus = idle_links.popleft() if len(idle_links) > _KEPT else None
            start, self._sweeping = not self._sweeping, True
        if surplus is not None:
            surplus.close()
        if start:
            threading.Thread(target=self._sweep, name="agent-idle", daemon=True).start()

    def _sweep(self) -> None:
        """Close connections that have ended (with their container), or were not used for long; end with the last."""
        pause = threading.Event()
        while True:
            pause.wait(_SWEEP_SECONDS)
            oldest = time.monotonic() - _IDLE_SECONDS
            with self._lock:
                for key, idle_links in list(self._idle.items()):
                    for link in [
                        idle_link for idle_link in idle_links if idle_link.idle_since < oldest or not idle_link.quiet
                    ]:
                        idle_links.remove(link)
                        link.close()
                    if not idle_links:
                        del self._idle[key]
                if not self._idle:
                    self._sweeping = False
                    return

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            for idle_links in self._idle.values():
                for link in idle_links:
                    link.close()
            self._idle.clear()


class _AgentExec(Iterator[Chunk]):
    """ports.ExecStream of a command that an agent started. Its marked processes are killed from the host, too."""

    def __init__(
        self,
        answer: _Answer,
        killer: Killer | None,
        kill: Callable[[], bool],
        target: Target,
        timeout_seconds: float | None,
        escaped: Escaped | None,
        subject: str,
        lasts: bool,
    ) -> None:
        self._answer, self._killer, self._target, self._subject = answer, killer, target, subject
        self._kill, self._lasts = kill, lasts
        self._ended, self._killed = threading.Event(), threading.Event()
        self._timed_out = self._left = False
        self._chunks = self._read()
        self._timer = (
            threading.Timer(timeout_seconds, self._expire, (escaped,)) if timeout_seconds is not None else None
        )
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def resize(self, rows: int, columns: int) -> None:
        """No-op: it has no terminal."""

    def signal(self, name: str) -> None:
        """Send a signal (such as INT) to its process group. No-op once it has ended. Raises StreamError."""
        number = signal_number(name)
        if self._killer is not None and (leader := self._killer.leader(self._target)):
            signal_group(leader, self._target.container_id, number, self._killer.proc)

    def close(self) -> None:
        """End it, from any thread. A command that still runs is killed."""
        if not self._ended.is_set():
            self._left = True
            self._finish()
            self._answer.close()
            if self._lasts and not self._timed_out:
                threading.Thread(target=self._kill_all, name="agent-kill", daemon=True).start()
            elif self._killer is not None and not self._timed_out:
                threading.Thread(target=self._killer.end, args=(self._target,), name="agent-kill", daemon=True).start()

    def __del__(self) -> None:
        if hasattr(self, "_chunks"):
            self.close()

    def _read(self) -> Iterator[Chunk]:
        frames = _Frames(self._answer, self._subject)
        try:
            code = yield from frames.output()
        except AgentError as error:
            if not self._timed_out:
                self._abandon()
                raise StreamError(f"{error}; the command was killed") from error
        self._finish()
        if self._timed_out:
            # Report the end only after all is killed: the next command may need the sandbox.
            self._killed.wait(_START_SECONDS)
            self._answer.close()
            yield Chunk("timeout", b"")
            code = TIMED_OUT
        yield Chunk("exit", str(code).encode())

    def _abandon(self) -> None:
        self._finish()
        self._answer.close()
        if self._killer is not None and not self._left:
            self._killer.end(self._target)

    def _finish(self) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self, escaped: Escaped | None) -> None:
        """Kill it at its time-out; maybe only its children still hold the output open."""
        if self._ended.is_set():
            return
        self._timed_out = True
        try:
            if not self._kill_all() and escaped is not None:
                escaped("processes that can't be told from the sandbox's own")
        finally:
            self._killed.set()
            self._ended.wait(_DRAIN_SECONDS)
            self._answer.close()

    def _kill_all(self) -> bool:
        """Kill it by its agent and from the host, which waits for no agent. False if processes may remain."""
        answers: list[bool] = []
        asking = threading.Thread(target=lambda: answers.append(self._kill()), name="agent-kill", daemon=True)
        until = time.monotonic() + _HELLO_SECONDS + _KILL_SECONDS
        asking.start()
        asking.join(_HEAD_START_SECONDS)
        is_complete = self._killer is None or self._killer.end(self._target)
        asking.join(max(0.0, until - time.monotonic()))
        # An agent that is stopped, or no agent any more, still has the command's processes below it.
        return is_complete and any(answers) and not (self._killer and self._killer.possible_escapes(self._target))


class _Frames:
    """The frames of an exec's answer. What remains after the exit code is the end of the answer."""

    def __init__(self, answer: _Answer, subject: str) -> None:
        self._answer, self._subject = answer, subject
        self._received, self._at = b"", 0  # and how much of it has been read: small frames cost no copies of the rest

    def output(self) -> Generator[Chunk, None, int]:
        """Yield the output, return the exit code. Raises AgentError."""
        while True:
            kind, length = _FRAME.unpack(self._exactly(_FRAME.size))
            if kind == _EXIT and 0 < length <= _EXIT_BYTES:
                return self._code(self._exactly(length))
            if kind not in _STREAMS or not 0 < length <= _FRAME_BYTES:
                raise self._bad()
            while length:
                if self._at == len(self._received):
                    self._read_more()
                data = self._received[self._at : self._at + length]
                self._at += len(data)
                length -= len(data)
                yield Chunk(_STREAMS[kind], data)

    def _code(self, digits: bytes) -> int:
        if not digits.isdigit() or int(digits) > 255 or self._at < len(self._received) or self._answer.read():
            raise self._bad()
        return int(digits)

    def _exactly(self, count: int) -> bytes:
        while len(self._received) - self._at < count:
            self._read_more()
        data = self._received[self._at : self._at + count]
        self._at += count
        return data

    def _read_more(self) -> None:
        data = self._answer.read()
        if not data:
            raise self._bad()
        self._received, self._at = self._received[self._at :] + data, 0

    def _bad(self) -> AgentError:
        return AgentError(
            "BadAnswer", f"what listens on the agent's port in {self._subject} sent no output of a command"
        )


def left_execs(data: bytes) -> Sequence[LeftExec]:
    """Read an agent's list of commands; what is not of its form is left out."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return ()
    listed = document.get("commands") if isinstance(document, dict) else None
    return tuple(
        LeftExec(entry["id"], entry["label"])
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
        and isinstance(entry.get("id"), str)
        and _MARK.fullmatch(entry["id"])
        and isinstance(entry.get("label"), str)
    )


def _subject(container: Container) -> str:
    return f"sandbox `{container.object_name or container.name}`"


def _head(request: AgentRequest) -> h11.Request:
    headers = [("host", "127.0.0.1"), *request.headers.items(), ("content-length", str(len(request.body)))]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return h11.Request(method=request.method, target=request.path, headers=encoded)
