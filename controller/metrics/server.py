"""Metrics listener: HTTP on threads of its own, so that scrapes and the API never wait for each other.

HTTP/1.0: one request a connection. A scraper sends its request at once and reads the answer as it comes, so a
connection that does neither makes room for the next one as soon as there are many.
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, parse_headers
from io import BytesIO
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry

from controller.kinds.common.address import is_loopback
from controller.kinds.common.http_head import fault, head_in
from controller.metrics.pages import Answer, Pages
from controller.metrics.port_owner import port_owner

_log = logging.getLogger("paddock.metrics")
HEAD_SECONDS = 2.0  # from connecting to the end of the request's head, with the handshake of TLS
ANSWER_SECONDS = 10.0  # for the client to take the answer
MOST_WAITING = 256  # connections whose request has not come yet
MOST_ANSWERED = 16  # that are being answered, and as many that take their answer
_HEAD_BYTES = 16 << 10
_ACCEPTED_AT_ONCE = 32  # a part of those that may wait: before more are let in, what has come is read
_BACKLOG = 1024
_REST_SECONDS = 1.0  # where no more files may be opened
_REQUEST = re.compile(rb"([A-Z]+) ([\x21-\x7e]+) HTTP/1\.[01]\r\n")


class CannotListen(Exception):
    """The metrics address can't be bound; the message has the reason, the port's owner, and the remedy."""


class MetricsServer:
    """Serves `registry` at http://host:port/metrics. Port 0 picks a free one, see `port`."""

    def __init__(
        self,
        registry: CollectorRegistry,
        host: str = "127.0.0.1",
        port: int = 9464,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`token` is required of every scrape; with `tls` it is https."""
        self._pages = Pages(registry, token, local=token is None and is_loopback(host))
        self._tls = tls
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._thread: Thread | None = None

    @property
    def port(self) -> int:
        """Bound port; before `start`, the requested one."""
        return self._server.port if self._server else self._port

    def start(self) -> None:
        """Bind and serve in the background. Raises CannotListen."""
        if self._server is not None:
            raise RuntimeError("metrics listener: already running")
        try:
            self._server = _Server(_listen(self._host, self._port), self._pages.answer, self._tls)
        except OSError as error:
            raise CannotListen(_why(self._host, self._port, error)) from error
        self._thread = Thread(target=self._server.run, name="paddock-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, let scrapes in flight end, free the port. No effect if it does not run."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._port = self.port
        self._server = None
        self._thread = None
        server.stop()
        thread.join()


def _why(host: str, port: int, error: OSError) -> str:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port) or "another process (run as root to see which)"
        return f"metrics address {where}: taken by {owner}; stop it, or choose another port for the metrics"
    return f"metrics address {where}: can't be used: {error.strerror or error}; choose another host or port"


def _listen(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A port in TIME_WAIT is free; a port with a listener still is not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


class _Places:
    """Bounded set of connections: one too many closes the oldest of the address with the most."""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0
        self._held: dict[object, dict[_Connection, None]] = {}

    def __iter__(self) -> "Iterator[_Connection]":
        return iter([connection for connections in self._held.values() for connection in connections])

    def __contains__(self, connection: object) -> bool:
        return isinstance(connection, _Connection) and connection in self._held.get(connection.holder, {})

    def __len__(self) -> int:
        return self._count

    def add(self, connection: "_Connection") -> None:
        if self._count >= self._most:
            crowd = max(self._held.values(), key=len)
            next(iter(crowd)).end()
        self._held.setdefault(connection.holder, {})[connection] = None
        self._count += 1

    def discard(self, connection: "_Connection") -> None:
        """Remove a connection; no effect if it is not in the set."""
        connections = self._held.get(connection.holder, {})
        if connection in connections:
            del connections[connection]
            self._count -= 1
            if not connections:
                del self._held[connection.holder]


class _Server:
    """Event loop over a listening socket. Only `stop` and `port` may be used from other threads."""

    def __init__(
        self, listening: socket.socket, answer: Callable[[str, Any], Answer], tls: ssl.SSLContext | None
    ) -> None:
        self.answer, self.tls, self._listening = answer, tls, listening
        self.port: int = listening.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self._stopping, self._answered = asyncio.Event(), asyncio.Event()
        self.waiting, self.taking = _Places(MOST_WAITING), _Places(MOST_ANSWERED)
        self.asked: set[_Connection] = set()

    def run(self) -> None:
        """Serve until `stop`."""
        with contextlib.closing(self.loop):
            self.loop.run_until_complete(self._serve())

    def stop(self) -> None:
        """Close idle connections, and let responses end (at most ANSWER_SECONDS); then `run` returns. Thread-safe."""
        self.loop.call_soon_threadsafe(self._stopping.set)

    def forget(self, connection: "_Connection") -> None:
        """Forget a connection that ended."""
        self.waiting.discard(connection)
        self.taking.discard(connection)
        self.asked.discard(connection)
        if not self.asked and not self.taking:
            self._answered.set()

    async def _serve(self) -> None:
        self.loop.add_reader(self._listening, self._accept)
        await self._stopping.wait()
        self.loop.remove_reader(self._listening)
        self._listening.close()
        for connection in self.waiting:
            connection.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while self.asked or len(self.taking):
                    self._answered.clear()
                    await self._answered.wait()
        for late in (*self.asked, *self.taking):
            late.end()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("metrics listener: accepting paused: %s", error)
                self.loop.remove_reader(self._listening)
                self.loop.call_later(_REST_SECONDS, self._accept_again)
                return
            sock.setblocking(False)
            self.waiting.add(_Connection(self, sock, _holder(address[0])))

    def _accept_again(self) -> None:
        if not self._stopping.is_set():
            self.loop.add_reader(self._listening, self._accept)


def _holder(address: str) -> object:
    """Return the peer's address, or for IPv6 its /64 network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None) or ip
    return mapped.packed[:8] if mapped.version == 6 else mapped.packed


class _Connection(asyncio.Protocol):
    """One client connection: read the request, respond from a thread, write the response."""

    def __init__(self, server: _Server, sock: socket.socket, holder: object) -> None:
        self.holder = holder
        self._server = server
        self._sock = sock
        self._data = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer = server.loop.call_later(HEAD_SECONDS, self.end)
        options: dict[str, Any] = {"ssl": server.tls}
        if server.tls is not None:
            options |= {"ssl_handshake_timeout": HEAD_SECONDS, "ssl_shutdown_timeout": HEAD_SECONDS}
        connecting = server.loop.connect_accepted_socket(lambda: self, sock, **options)
        self._connecting = server.loop.create_task(connecting)
        self._connecting.add_done_callback(self._connected)

    def _connected(self, connecting: "asyncio.Task[Any]") -> None:
        """Ignore clients that disconnect or do not speak TLS."""
        if connecting.cancelled() or connecting.exception() is not None:
            _log.debug("metrics connection closed before its request")
            self._sock.close()
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the base class's
        self._timer.cancel()
        self._server.forget(self)

    def end(self) -> None:
        """Abort the connection, and free its slot."""
        self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        self.connection_lost(None)

    def eof_received(self) -> bool:
        """Keep a half-closed connection open for the response."""
        return self in self._server.asked and self._server.tls is None

    def data_received(self, data: bytes) -> None:
        if self not in self._server.waiting:
            return  # what comes after the request is not read
        self._data += data
        head = head_in(bytes(self._data))
        if why := fault(head):
            self._take(Answer(400, f"bad request: {why}\n".encode()))
        elif len(head) > _HEAD_BYTES:
            self._take(Answer(431, b"bad request: its head is larger than 16 KiB; send fewer headers\n"))
        elif head.endswith(b"\r\n\r\n"):
            self._ask(head)

    def _ask(self, head: bytes) -> None:
        """Start a thread for the complete request."""
        request = _REQUEST.match(head)
        try:
            headers = parse_headers(BytesIO(head[request.end() :] if request else b""))
        except HTTPException:
            request = None
        if request is None:
            self._take(Answer(400, b"bad request: send `GET /metrics HTTP/1.1`, and at most 100 headers\n"))
        elif request[1] not in (b"GET", b"HEAD"):
            self._take(Answer(501, b"not implemented: GET and HEAD are served here\n"))
        elif len(self._server.asked) >= MOST_ANSWERED:
            self.end()
        else:
            self._server.waiting.discard(self)
            self._server.asked.add(self)
            self._timer.cancel()
            try:
                Thread(target=self._work, args=(*request.groups(), headers), daemon=True).start()
            except RuntimeError:  # no thread to be had
                self.end()

    def _work(self, method: bytes, target: bytes, headers: HTTPMessage) -> None:
        """Compute the response, in a thread of its own."""
        answer = self._server.answer(target.decode("ascii"), headers)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._server.loop.call_soon_threadsafe(self._take, answer, method == b"HEAD")

    def _take(self, answer: Answer, head_only: bool = False) -> None:
        """Write the response, and close the connection once the client has read it."""
        self._server.waiting.discard(self)
        self._server.asked.discard(self)
        if self._transport is None or self._transport.is_closing():
            self._server.forget(self)
            return
        self._server.taking.add(self)
        self._timer.cancel()
        self._timer = self._server.loop.call_later(ANSWER_SECONDS, self.end)
        self._transport.write(_head(answer) + (b"" if head_only else answer.body))
        self._transport.close()


def _head(answer: Answer) -> bytes:
    fixed = {"Server": "paddock", "Date": formatdate(usegmt=True), "Content-Type": answer.content_type}
    fields = {**fixed, "Content-Length": str(len(answer.body)), **answer.headers}
    lines = [f"HTTP/1.0 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
