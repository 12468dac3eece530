"""Port forwarding: connections to ports of a sandbox, and local listeners that relay to them.

Each connection uses a WebSocket (api/routes/sandbox/port_forward.py). Frames are built here and not by the library that
exec uses: that saves copies of large data. On the same host there are only lengths instead of frames (see
api/streams/tunnel.py), and data is spliced without a copy.
"""

import contextlib
import html
import io
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from typing import TypeVar

from paddock._client.errors import ClientError
from paddock._client.handshake import open_socket, protocol, upgrade
from paddock._client.server import Server
from paddock._client.splice import Pipe, can_splice

_T = TypeVar("_T", bound="FramedConnection")

_PROTOCOL, _RAW = "portforward.paddock", "raw.portforward.paddock"
_LENGTH = struct.Struct(">I")
_END = b"end"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_PIECE_BYTES = 1 << 18
_SEND_BUFFER_BYTES = 1 << 20  # socket buffer towards the daemon; the system may grant less
_CONTROL_BYTES = 1 << 10
# Heads of requests to a host name of their own.
_HEAD_BYTES, _HEAD_SECONDS = 1 << 16, 30.0
_MISDIRECTED = (
    b"HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"this port is served under the host name that was opened in the browser alone; open that address\n"
)
# What a browser shows in place of a program that does not answer.
_UNANSWERED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>:root{{color-scheme:light dark}}\
body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem}}h1{{font-size:1.3rem}}</style>
<h1>{title}</h1><p>{reason}</p><p>Start the program in the sandbox, listening on this port, then reload this page.</p>
</html>
"""
# A local program that reads nothing blocks its sender; it checks this often if the forwarding was closed.
_SEND_TIMEOUT = struct.pack("ll", 0, 500_000)  # a timeval: seconds, microseconds


class FramedConnection:
    """A WebSocket after its handshake; one thread may send while another receives. Close it from any thread.

    `raw`: lengths instead of frames.
    """

    def __init__(self, sock: socket.socket, *, raw: bool = False) -> None:
        self._pid, self._sock, self.raw = os.getpid(), sock, raw
        self._file = io.BufferedReader(sock.makefile("rb", buffering=0), 1 if raw else _PIECE_BYTES)  # 1: no read-ahead
        self._sock.settimeout(None)
        self._sending = threading.Lock()
        self._unread = 0  # bytes of the current data frame

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send all data. Raises ClientError."""
        for at in range(0, len(data), _PIECE_BYTES):
            self._frame(_BINARY, data[at : at + _PIECE_BYTES])

    def end(self) -> None:
        """Close the sending direction; receiving goes on."""
        self._frame(_TEXT, _END)

    def receive(self) -> bytes:
        """Receive data, b"" at the end. Raises ClientError when the connection broke."""
        try:
            while not self._unread:
                kind, size = self._head()
                if kind == _BINARY:
                    self._unread = size
                    if self.raw and not size:
                        return b""
                    continue
                if size > _CONTROL_BYTES:
                    raise ClientError("the daemon sent an unknown frame; check that both versions match")
                payload = self._exactly(size)
                if kind == _TEXT and payload == _END:
                    return b""
                if kind == _CLOSE:
                    raise ClientError("the sandbox or the daemon closed the connection")
                if kind == _PING:
                    self._frame(_PONG, payload)
            data = self._file.read1(min(self._unread, _PIECE_BYTES))
        except (OSError, ValueError) as error:  # ValueError: closed by another thread
            raise ClientError(f"the connection broke: {error}") from error
        if not data:
            raise ClientError("the connection broke; check that the daemon is running")
        self._unread -= len(data)
        return data

    def pour_into(self, sock: socket.socket, wait: Callable[[], None]) -> None:
        """Relay all received data to another socket. Raises ClientError, and OSError of either.

        `wait` is called on each send timeout of that socket; an exception of it ends the relay.
        """
        if not self.raw:
            while data := self.receive():
                _send_waiting(sock, data, wait)
            return
        with Pipe() as pipe:
            while size := self._head()[1]:
                while size:
                    if not (count := pipe.fill(self._sock, size)):
                        raise ClientError("the connection broke; check that the daemon is running")
                    pipe.drain(sock, count, wait)
                    size -= count

    def take_from(self, sock: socket.socket) -> None:
        """Relay all data of another socket to the sandbox, and end. Raises ClientError, and OSError of either."""
        if self.raw:
            with Pipe() as pipe:
                while count := pipe.fill(sock):
                    with self._sending:
                        self._sock.sendall(_LENGTH.pack(count))
                        pipe.drain(self._sock, count)
        else:
            while data := sock.recv(_PIECE_BYTES):
                self.send(data)
        self.end()

    def break_off(self) -> None:
        """Shut down both directions, which wakes blocked threads. It must still be closed."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it at once, in both directions. After a fork it stays open for the process that opened it."""
        if self._pid == os.getpid():
            self.break_off()
        with contextlib.suppress(OSError):
            self._file.close()
        self._sock.close()

    def _head(self) -> tuple[int, int]:
        if self.raw:
            return _BINARY, _LENGTH.unpack(self._exactly(_LENGTH.size))[0]
        first, second = self._exactly(2)
        size = second & 0x7F
        if size == 126:
            size = struct.unpack(">H", self._exactly(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self._exactly(8))[0]
        # A continuation frame has the kind 0, and is data like the first one.
        return (first & 0x0F) or _BINARY, size

    def _exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise ClientError("the connection broke; check that the daemon is running")
        return data

    def _frame(self, kind: int, data: bytes) -> None:
        if self.raw:
            self._write(_LENGTH.pack(0), b"") if kind == _TEXT else self._write(_LENGTH.pack(len(data)), data)
            return
        mask = os.urandom(4)
        size = len(data)
        head = struct.pack(">BB", 0x80 | kind, 0x80 | size) if size < 126 else b""
        if size >= 126:
            is_short = size < 1 << 16
            head = struct.pack(">BBH" if is_short else ">BBQ", 0x80 | kind, 0x80 | (126 if is_short else 127), size)
        self._write(head + mask, _masking()(data, mask))

    def _write(self, head: bytes, data: bytes) -> None:
        try:
            with self._sending:
                sent = self._sock.sendmsg([head, data])
                for piece in (head[sent:], memoryview(data)[max(0, sent - len(head)) :]):
                    if piece:  # an empty send fails once the daemon has closed, as it may after `end`
                        self._sock.sendall(piece)
        except OSError as error:
            raise ClientError(f"the connection broke: {error.strerror or error}") from error


class PortConnection(FramedConnection):
    """One connection to a port of a sandbox."""

    def __init__(self, server: Server, path: str, port: int) -> None:
        """Raises Unreachable, and Refused: no listener, sandbox not running, or too many connections."""
        from paddock._client.connection import full_path  # its imports take longer than a handshake

        sock = open_socket(server)
        offered = [_RAW, _PROTOCOL] if server.socket and can_splice() else [_PROTOCOL]
        try:
            _, headers = upgrade(sock, server, f"{full_path(path)}/portforward?port={port}", offered)
        except BaseException:
            sock.close()
            raise
        raw = protocol(headers) == _RAW
        super().__init__(sock, raw=raw)
        if raw:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)


def open_port(server: Server, path: str, port: int) -> PortConnection:
    """Connect to a port of the sandbox at `path`."""
    return PortConnection(server, path, port)


class Forwarding:
    """Local listener that relays each connection to a port of the sandbox. Close it. `local` 0: a free port.

    `failed` is called, from any thread, with a message for each connection that failed. With a `host` it relays only
    HTTP connections to that name: a browser's cookies for 127.0.0.1 go to all of its ports, but not to that name.
    """

    def __init__(
        self,
        open_: Callable[[int], PortConnection],
        remote: int,
        *,
        local: int = 0,
        address: str = "127.0.0.1",
        failed: Callable[[str], None] = lambda _message: None,
        host: str = "",
    ) -> None:
        """Raises ClientError if it can't listen."""
        self._pid = os.getpid()
        self._open, self.remote, self.address, self._failed = open_, remote, address, failed
        self.host = host
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listening = socket.create_server((address, local), family=family, backlog=128)
        except OSError as error:
            raise ClientError(
                f"{address}:{local}: can't listen ({error.strerror or error}); choose another port"
            ) from error
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._closed = False
        self._links: set[Callable[[], None]] = set()
        self._thread = threading.Thread(target=self._accept, name="port-forward", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Forwarding":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def open(self) -> int:
        """Number of open connections."""
        return len(self._links)

    def close(self) -> None:
        """Stop listening and close every connection. A child after a fork only forgets the listener."""
        if self._pid != os.getpid():
            self._listening.close()
            return
        with self._lock:
            self._closed, links = True, list(self._links)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end_link in links:
            end_link()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(sock,), name="port-forward", daemon=True).start()

    def _relay(self, sock: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(sock.close)
            _break_at_close(sock, True)
            head = _request_head(sock) if self.host else b""
            if self.host and not _is_to(head, f"{self.host}:{self.port}"):
                _break_at_close(sock, False)
                with contextlib.suppress(OSError):
                    sock.sendall(_MISDIRECTED if head else b"")
                return
            try:
                link = stack.enter_context(self._open(self.remote))
            except ClientError as error:
                self._failed(f"port {self.remote}: {error.message}")
                if self.host:
                    _break_at_close(sock, False)
                    with contextlib.suppress(OSError):
                        sock.sendall(_unanswered(head, self.remote, error.message))
                return

            def end() -> None:
                link.break_off()  # not closed: the descriptor could be reused while a thread still uses it
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)  # not both: that would look like a regular end before the reset

            with self._lock:
                if self._closed:
                    return
                self._links.add(end)
            stack.callback(self._links.discard, end)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
            out = threading.Thread(target=_send_all, args=(sock, link, head), name="port-forward", daemon=True)
            out.start()
            try:
                link.pour_into(sock, self._check_open)
                sock.shutdown(socket.SHUT_WR)
                out.join()
                _break_at_close(sock, False)
            except (ClientError, OSError):
                end()
                out.join()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("the forwarding was closed")


def own_host() -> str:
    """Return a name of this machine that nobody can guess; browsers look no `localhost` name up."""
    return f"{secrets.token_hex(12)}.localhost"


def _request_head(sock: socket.socket) -> bytes:
    """Read an HTTP request to the end of its head, with what came along; empty if none comes."""
    data = b""
    sock.settimeout(_HEAD_SECONDS)
    try:
        while b"\r\n\r\n" not in data:
            piece = sock.recv(_HEAD_BYTES)
            data += piece
            if not piece or len(data) > _HEAD_BYTES << 1:
                return b""
        sock.settimeout(None)
    except OSError:
        return b""
    return data


def _is_to(data: bytes, host: str) -> bool:
    """Tell if a request is to that host, and to no other."""
    lines = data.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]
    parts = (line.partition(b":") for line in lines)
    return [value.strip() for name, _, value in parts if name.strip() == b"host"] == [host.encode()]


def _unanswered(head: bytes, port: int, reason: str) -> bytes:
    """Return the answer to a request that the sandbox's port does not take: a page for people, a line for programs."""
    title = f"Nothing answers at port {port}"
    is_for_people = any(
        line.startswith(b"accept:") and b"text/html" in line
        for line in head.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    )
    page = _UNANSWERED.format(title=title, reason=html.escape(reason)) if is_for_people else f"{title}: {reason}\n"
    body = page.encode()
    lines = (
        "HTTP/1.1 502 Bad Gateway",
        f"Content-Type: text/{'html' if is_for_people else 'plain'}; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def _send_all(sock: socket.socket, link: PortConnection, first: bytes) -> None:
    """Relay the local program's data to its end, after what was read of it already."""
    try:
        link.send(first)
        link.take_from(sock)
    except (ClientError, OSError):
        link.break_off()  # the receiving thread notices it


def _send_waiting(sock: socket.socket, data: bytes, wait: Callable[[], None]) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            wait()


def _break_at_close(sock: socket.socket, on: bool) -> None:
    """Set whether closing the socket resets the connection, also when this process is killed.

    A partial response must not look complete.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))


def _masking() -> Callable[[bytes, bytes], bytes]:
    try:
        from websockets.speedups import apply_mask
    except ImportError:
        from websockets.utils import apply_mask
    return apply_mask
