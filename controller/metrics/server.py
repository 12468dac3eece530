"""The metrics door: HTTP from threads of its own, so that no scrape waits for the API, nor the API for a scrape."""

import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry

from controller.metrics.pages import Answer, Pages
from controller.metrics.port_owner import port_owner

_log = logging.getLogger("paddock.metrics")
MAX_CONNECTIONS = 16
IDLE_SECONDS = 10


class CannotListen(Exception):
    """The metrics address can't be bound; says why, by whom it is taken, and what to do."""


class MetricsServer:
    """Serves `registry` at http://host:port/metrics. Port 0 takes a free one; `port` tells which."""

    def __init__(
        self,
        registry: CollectorRegistry,
        host: str = "127.0.0.1",
        port: int = 9464,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`token` is asked of every scrape; with `tls` it is https."""
        self._pages = Pages(registry, token, local=token is None and _is_loopback(host))
        self._tls = tls
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._thread: Thread | None = None

    @property
    def port(self) -> int:
        """The port bound; before `start`, the one asked for."""
        return self._server.server_address[1] if self._server else self._port

    def start(self) -> None:
        """Bind and serve in the background. Raises CannotListen."""
        if self._server is not None:
            raise RuntimeError("the metrics server runs already")
        try:
            self._server = _Server(self._host, self._port, self._pages.answer, self._tls)
        except OSError as error:
            raise CannotListen(_why(self._host, self._port, error)) from error
        self._thread = Thread(target=self._server.serve_forever, name="paddock-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, let scrapes in flight end, free the port. Does nothing when it does not run."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._port, self._server, self._thread = self.port, None, None
        server.stop()
        thread.join()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _why(host: str, port: int, error: OSError) -> str:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port) or "another process (run as root to see which)"
        return f"metrics address {where} is taken by {owner}; stop it, or choose another port for the metrics"
    return f"metrics address {where} can't be used: {error.strerror or error}; choose another host or port"


class _Server(ThreadingMixIn, TCPServer):
    """A thread for each connection, a bounded number of them, all ended by `stop`."""

    allow_reuse_address = True  # a port in TIME_WAIT is free; a port with a listener still is not
    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self, host: str, port: int, answer: Callable[[str, Any], Answer], tls: ssl.SSLContext | None = None
    ) -> None:
        self.answer, self._tls = answer, tls
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._lock:
            self._open.add(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had: the base class closes the connection
            self._done(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._done(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread: a client that is slow to shake hands holds up nobody else."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(IDLE_SECONDS)
        # The plain socket stays the one that is known and closed by the base class.
        with self._tls.wrap_socket(request.dup(), server_side=True) as secured:
            super().finish_request(secured, client_address)

    def _done(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """A client that went away, or never spoke, is no error of ours."""
        _log.debug("metrics connection from %s broke off", client_address, exc_info=True)

    def stop(self) -> None:
        """Wake the accept loop, end idle connections, let answers being written end (at most IDLE_SECONDS)."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        with self._lock:
            for each in self._open:
                _end_of_input(each)
        for _ in range(MAX_CONNECTIONS):
            self._slots.acquire(timeout=IDLE_SECONDS)
        self.server_close()


def _end_of_input(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RD)
    except OSError:  # ended by itself just now
        return


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.0: one request a connection."""

    server: _Server
    server_version = "paddock"
    sys_version = ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        answer = self.server.answer(self.path, self.headers)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        _log.debug(format, *args)
