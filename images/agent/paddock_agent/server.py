"""The HTTP server: kept connections, bounded in number, memory and patience."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
from collections import OrderedDict

from . import linux
from .http import HTTPError, Parser, Request, head
from .loop import Loop, Timer, log, report
from .peers import CallerPolicy
from .protocol import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable

    Route = Callable[[Request, Exchange], None]


_READ = 64 * 1024
_REQUEST_SECONDS = 20.0  # for a request to arrive as a whole
_WRITE_SECONDS = 30.0  # for a client to take some of its answer
_PING_SECONDS = 15.0
_LINGER_SECONDS = 5.0  # for a client to hear the last answer and close
_MAX_BUFFERED = 16 * 1024 * 1024  # bytes of requests and answers of all connections
_MAX_EVENTS = 1024 * 1024  # unsent bytes of one event stream
_LARGE = 1024 * 1024
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Connection(Exchange):
    """One client; one request at a time, the next waits in the buffer."""

    def __init__(self, server: Server, client: socket.socket) -> None:
        self._server = server
        self._loop = server.loop
        self._socket = client
        self._fd = client.fileno()
        self._parser = Parser()
        self._out = bytearray()
        self._request: Request | None = None
        self._streaming = False
        self._drained: Callable[[], None] | None = None
        self._gone: Callable[[], None] | None = None
        self._deadline: Timer | None = None
        self._ping: Timer | None = None
        self._closing = False
        self._lingering = False
        self.closed = False
        self._watch()

    @property
    def idle(self) -> bool:
        return self._request is None and (not self._out or self._closing)

    @property
    def stuck(self) -> bool:
        """Tell if an answer waits for the client: another one could not be sent either."""
        return bool(self._out)

    @property
    def held(self) -> int:
        return self._parser.held + len(self._out)

    def _watch(self) -> None:
        # Behind a running request only little is read ahead; the end of the stream must still be seen.
        full = (self._request is not None or self._out) and self._parser.held >= _READ
        self._loop.watch(self._fd, None if full else self._readable, self._writable if self._out else None)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if self._closing:
            return  # read and thrown away until the client has heard the answer, or its time is over
        self._parser.feed(data)
        self._server.bound_memory()
        self._advance()

    def _advance(self) -> None:
        """Begin the next request that is whole."""
        while self._request is None and not self._out and not self._closing and not self.closed:
            try:
                request = self._parser.next()
            except HTTPError as error:
                self.refuse(error)
                return
            if request is None:
                break
            self._set_deadline(None)
            self._request = request
            self._server.used(self)
            self._server.handle(request, self)
        if self.closed or self._closing:
            return
        if self._request is None:
            if self._parser.wants_continue:
                self._parser.wants_continue = False
                self._out += head(100, {}, True)
            if self._parser.partial and self._deadline is None:
                self._set_deadline(_REQUEST_SECONDS)
        self._flush()

    def _set_deadline(self, seconds: float | None) -> None:
        self._loop.cancel(self._deadline)
        self._deadline = self._loop.after(seconds, self._too_slow) if seconds else None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._out or self._closing:
            self.close()
        else:
            self.refuse(HTTPError(408, "the request did not arrive in time"))

    def refuse(self, error: HTTPError) -> None:
        """Answer with an error and close; what the client has sent is forgotten."""
        self._leave()
        self._parser = Parser()
        self._request = None
        self._send(error.status, json.dumps({"error": error.message}).encode(), {}, keep_alive=False)

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        request, self._request = self._request, None
        if request is None or self.closed:
            return
        self._gone = None
        self._loop.cancel(self._ping)
        self._ping = None
        if self._streaming:
            self._out += _event(body)
            self._streaming = False
            self._closing = True  # a stream without length ends with its connection
            self._flush()
            return
        self._send(status, body, headers or {}, request.keep_alive)
        if not self._closing and not self._out and self._parser.partial:
            self._loop.after(0, self._advance)  # not from here: pipelined requests would nest

    def _send(self, status: int, body: bytes, headers: dict[str, str], keep_alive: bool) -> None:
        kind = {"content-type": "application/json"} if body else {}
        self._out += head(status, {**kind, "content-length": str(len(body)), **headers}, keep_alive)
        self._out += body
        self._closing = not keep_alive
        self._flush()

    def open_stream(self) -> None:
        self._streaming = True
        headers = {"content-type": "text/event-stream", "cache-control": "no-cache, no-transform"}
        self._out += head(200, headers, keep_alive=False)
        self._ping = self._loop.after(_PING_SECONDS, self._send_ping)
        self._flush()

    def event(self, message: bytes) -> None:
        if self.closed or not self._streaming:
            return
        if len(self._out) > _MAX_EVENTS:
            self.close()  # a reader this far behind has lost notices anyway
            return
        self._out += _event(message)
        self._flush()

    def keep_alive_events(self) -> None:
        request = self._request
        if request is not None and request.accepts("text/event-stream"):
            self._ping = self._loop.after(_PING_SECONDS, self._send_ping)

    def _send_ping(self) -> None:
        self._ping = None
        if not self._streaming:
            self.open_stream()
            return
        if not self._out:
            self._out += b": ping\r\n\r\n"
        self._ping = self._loop.after(_PING_SECONDS, self._send_ping)
        self._flush()

    def open_chunks(self, kind: str) -> None:
        assert self._request is not None
        headers = {"content-type": kind, "transfer-encoding": "chunked"}
        self._out += head(200, headers, self._request.keep_alive)
        self._flush()

    def chunk(self, data: bytes) -> None:
        if not self.closed:
            self._out += b"%x\r\n" % len(data) + data + b"\r\n"
            self._flush()

    def end_chunks(self) -> None:
        request, self._request = self._request, None
        if request is None or self.closed:
            return
        self._gone = self._drained = None
        self._out += b"0\r\n\r\n"
        self._closing = not request.keep_alive
        self._flush()
        if not self._closing and not self._out and self._parser.partial:
            self._loop.after(0, self._advance)

    @property
    def unsent(self) -> int:
        return len(self._out)

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        self._drained = callback

    def on_gone(self, callback: Callable[[], None]) -> None:
        self._gone = callback

    def _writable(self) -> None:
        self._flush()
        if not self._out:
            drained, self._drained = self._drained, None
            if drained is not None:
                drained()
            self._advance()

    def _flush(self) -> None:
        if self.closed:
            return
        before = len(self._out)
        while self._out:
            try:
                sent = self._socket.send(memoryview(self._out)[:_LARGE])
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            del self._out[:sent]
        if self._out:
            if self._deadline is None or len(self._out) < before:
                self._set_deadline(_WRITE_SECONDS)
        elif before and not self._parser.partial:
            self._set_deadline(None)
        if self._closing and not self._out and not self._lingering:
            self._linger()
        self._watch()

    def _linger(self) -> None:
        """Say that nothing more comes, and wait for the client to close: a reset would cost it the answer."""
        self._lingering = True
        self._set_deadline(_LINGER_SECONDS)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _leave(self) -> None:
        gone, self._gone = self._gone, None
        self._drained = None
        self._loop.cancel(self._ping)
        self._ping = None
        if gone is not None:
            gone()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._set_deadline(None)
        self._loop.forget(self._fd)
        self._socket.close()
        self._out.clear()
        self._server.gone(self)
        self._leave()
        self._request = None


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


class Server:
    """Listens, and hands whole requests to the routes."""

    def __init__(self, loop: Loop, address: tuple[str, int], most: int, callers: CallerPolicy) -> None:
        self.loop = loop
        self._most = most
        self._callers = callers
        self._routes: dict[tuple[str, str], Route] = {}
        self._connections: OrderedDict[Connection, None] = OrderedDict()  # the longest unused first
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(address)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._large = False
        loop.watch(self._listener.fileno(), self._accept)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def route(self, method: str, path: str, handler: Route) -> None:
        self._routes[method, path] = handler

    def _accept(self) -> None:
        for _ in range(16):
            try:
                client, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._make_room(0)
                return
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._callers.allows(peer, client.getsockname()):
                _refuse_at_once(client, 403, "the agent serves Paddock alone: set `template.agent.callers` to Anyone")
            elif not self._make_room(self._most):
                _refuse_at_once(client, 503, f"the agent has {self._most} busy connections; try again")
            else:
                self._connections[Connection(self, client)] = None

    def _make_room(self, most: int) -> bool:
        """Close the longest unused connection if there are too many; a busy one is never closed."""
        if len(self._connections) < most:
            return True
        victim = next((each for each in self._connections if each.idle), None)
        if victim is None:
            return False
        victim.close()
        return True

    def used(self, connection: Connection) -> None:
        self._connections.move_to_end(connection)

    def gone(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def bound_memory(self) -> None:
        """Refuse the largest unfinished requests while all together are too large."""
        while sum(each.held for each in self._connections) > _MAX_BUFFERED:
            largest = max(self._connections, key=lambda each: each.held)
            if largest.stuck:
                largest.close()
            else:
                largest.refuse(HTTPError(503, "the agent has too many unfinished requests; try again"))

    def handle(self, request: Request, connection: Connection) -> None:
        self._note_size(len(request.body))
        refusal = self._refusal(request)
        if refusal is not None:
            status, message, headers = refusal
            connection.reply(status, json.dumps({"error": message}).encode(), headers)
            return
        try:
            self._routes[request.method, request.path](request, connection)
        except Exception as error:
            report(error)
            connection.reply(503, b'{"error": "internal error of the agent"}')

    def _refusal(self, request: Request) -> tuple[int, str, dict[str, str]] | None:
        for header in ("host", "origin"):
            value = request.headers.get(header)
            if value is not None and not _is_loopback(value):
                return 403, f"{header}: must be of this host's loopback", {}
        if (request.method, request.path) not in self._routes:
            allowed = [method for method, path in self._routes if path == request.path]
            if allowed:
                return 405, f"{request.path} takes {', '.join(allowed)}", {"allow": ", ".join(allowed)}
            return 404, f"{request.path}: nothing is there", {}
        if request.method == "POST":
            kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
            if kind != "application/json":
                return 415, "content-type must be application/json", {}
            if not request.accepts("application/json") and not request.accepts("text/event-stream"):
                return 406, "the answer is application/json or text/event-stream", {}
        return None

    def _note_size(self, size: int) -> None:
        """Give memory back to the kernel some seconds after large requests."""
        if size >= _LARGE and not self._large:
            self._large = True

            def release() -> None:
                self._large = False
                linux.release_memory()

            self.loop.after(5.0, release)

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        self.loop.forget(self._listener.fileno())
        self._listener.close()


def _is_loopback(value: str) -> bool:
    host = value.partition("://")[2] if "://" in value else value
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower() in _LOOPBACK


def _refuse_at_once(client: socket.socket, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    with contextlib.suppress(OSError):
        client.recv(_READ)  # unread bytes would turn the answer into a reset
    with contextlib.suppress(OSError):
        client.send(head(status, headers, keep_alive=False) + body)
        client.shutdown(socket.SHUT_WR)
    client.close()


def announce(server: Server) -> None:
    host, port = server.address
    log(f"listening on {host}:{port}")
