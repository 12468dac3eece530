"""Ports of a sandbox: a connection to one as a socket would be, and listening on this machine for others to use.

A WebSocket carries each connection (api/routes/port_forward.py). Its frames are made here and not by the library that
exec uses: large data pass through with one copy instead of several. On this host there are no frames but lengths (see
api/streams/tunnel.py), and what is forwarded is not copied at all.
"""

import contextlib
import io
import os
import socket
import struct
import threading
from collections.abc import Callable

from controller.client.connection import full_path
from controller.client.errors import ClientError
from controller.client.handshake import open_socket, protocol, upgrade
from controller.client.server import Server
from controller.client.splice import Pipe, can_splice

_PROTOCOL, _RAW = "portforward.paddock", "raw.portforward.paddock"
_LENGTH = struct.Struct(">I")
_END = b"end"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_PIECE_BYTES = 1 << 18
_SEND_BUFFER_BYTES = 1 << 20  # under way to the daemon; the system gives less if it is set to
_CONTROL_BYTES = 1 << 10
# A program here that reads nothing holds up whoever sends to it; so often it is looked whether that is still wanted.
_SEND_TIMEOUT = struct.pack("ll", 0, 500_000)  # a timeval: seconds, microseconds


class PortConnection:
    """One connection to a port of a sandbox; one thread may send while another receives. Close it, from any thread.

    `raw` where there are no frames.
    """

    def __init__(self, server: Server, path: str, port: int) -> None:
        """Raises Unreachable, and Refused: nothing listens there, the sandbox does not run, there are too many."""
        self._sock = open_socket(server)
        offered = [_RAW, _PROTOCOL] if server.socket and can_splice() else [_PROTOCOL]
        try:
            target = f"{full_path(path)}/portforward?port={port}"
            file, headers = upgrade(self._sock, server, target, offered)
        except BaseException:
            self._sock.close()
            raise
        self.raw = protocol(headers) == _RAW
        self._file = io.BufferedReader(file, 1 if self.raw else _PIECE_BYTES)  # of 1: reads nothing ahead
        self._sock.settimeout(None)
        if self.raw:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._sending = threading.Lock()
        self._unread = 0  # of the data frame that is being read

    def __enter__(self) -> "PortConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send all of it. Raises ClientError."""
        for at in range(0, len(data), _PIECE_BYTES):
            self._frame(_BINARY, data[at : at + _PIECE_BYTES])

    def end(self) -> None:
        """No more will be sent; the other direction goes on."""
        self._frame(_TEXT, _END)

    def receive(self) -> bytes:
        """What has come, b"" once the box has no more to send. Raises ClientError when the connection broke."""
        try:
            while not self._unread:
                kind, size = self._head()
                if kind == _BINARY:
                    self._unread = size
                    if self.raw and not size:
                        return b""
                    continue
                if size > _CONTROL_BYTES:
                    raise ClientError("the daemon sent a frame that is none of this protocol")
                words = self._exactly(size)
                if kind == _TEXT and words == _END:
                    return b""
                if kind == _CLOSE:
                    raise ClientError("the box, or the daemon, ended the connection")
                if kind == _PING:
                    self._frame(_PONG, words)
            data = self._file.read1(min(self._unread, _PIECE_BYTES))
        except (OSError, ValueError) as error:  # ValueError: it was closed in another thread
            raise ClientError(f"the connection broke: {error}") from error
        if not data:
            raise ClientError("the connection broke; is the daemon still running?")
        self._unread -= len(data)
        return data

    def pour_into(self, sock: socket.socket, wait: Callable[[], None]) -> None:
        """All that comes, to its end, into another socket. Raises ClientError, and OSError of either.

        `wait` is called whenever that socket has taken nothing for its time to send; what it raises ends this.
        """
        if not self.raw:
            while data := self.receive():
                _send_waiting(sock, data, wait)
            return
        with Pipe() as pipe:
            while size := self._head()[1]:
                while size:
                    if not (count := pipe.fill(self._sock, size)):
                        raise ClientError("the connection broke; is the daemon still running?")
                    pipe.drain(sock, count, wait)
                    size -= count

    def take_from(self, sock: socket.socket) -> None:
        """Send all that comes from another socket, and end. Raises ClientError, and OSError of either."""
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
        """End it in both directions, and let go of whoever waits for it. It has still to be closed."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, at once and in both directions."""
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
        # A message in several frames: a continuation has the kind 0, and is data like the first.
        return (first & 0x0F) or _BINARY, size

    def _exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise ClientError("the connection broke; is the daemon still running?")
        return data

    def _frame(self, kind: int, data: bytes) -> None:
        if self.raw:
            self._write(_LENGTH.pack(0), b"") if kind == _TEXT else self._write(_LENGTH.pack(len(data)), data)
            return
        mask = os.urandom(4)
        size = len(data)
        head = struct.pack(">BB", 0x80 | kind, 0x80 | size) if size < 126 else b""
        if size >= 126:
            short = size < 1 << 16
            head = struct.pack(">BBH" if short else ">BBQ", 0x80 | kind, 0x80 | (126 if short else 127), size)
        self._write(head + mask, _masking()(data, mask))

    def _write(self, head: bytes, data: bytes) -> None:
        try:
            with self._sending:
                sent = self._sock.sendmsg([head, data])
                for rest in (head[sent:], memoryview(data)[max(0, sent - len(head)) :]):
                    if rest:  # to send nothing fails once the daemon has closed, as it may behind the last `end`
                        self._sock.sendall(rest)
        except OSError as error:
            raise ClientError(f"the connection broke: {error.strerror or error}") from error


class Forwarding:
    """Listens on this machine, and carries each connection that comes to a port of the sandbox. Close it.

    `failed` is told in words of connections that could not be made, from any thread.
    """

    def __init__(
        self,
        open_: Callable[[int], PortConnection],
        remote: int,
        local: int,
        address: str,
        failed: Callable[[str], None],
    ) -> None:
        """Raises ClientError where it can't listen."""
        self._open, self.remote, self.address, self._failed = open_, remote, address, failed
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listening = socket.create_server((address, local), family=family, backlog=128)
        except OSError as error:
            raise ClientError(f"can't listen on {address}:{local}: {error.strerror or error}") from error
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
        """How many connections there are now."""
        return len(self._links)

    def close(self) -> None:
        """Stop listening, and end every connection."""
        with self._lock:
            self._closed, links = True, list(self._links)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in links:
            each()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(sock,), name="port-forward", daemon=True).start()

    def _relay(self, sock: socket.socket) -> None:
        with contextlib.ExitStack() as held:
            held.callback(sock.close)
            _break_at_close(sock, True)
            try:
                link = held.enter_context(self._open(self.remote))
            except ClientError as error:
                self._failed(f"port {self.remote}: {error.message}")
                return

            def end() -> None:
                link.break_off()  # not closed: the number could be another's while a thread still goes by it
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)  # not both: that would look like a good end, before the reset

            with self._lock:
                if self._closed:
                    return
                self._links.add(end)
            held.callback(self._links.discard, end)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
            out = threading.Thread(target=_send_all, args=(sock, link), name="port-forward", daemon=True)
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


def _send_all(sock: socket.socket, link: PortConnection) -> None:
    """What the program on this machine sends, to its end."""
    try:
        link.take_from(sock)
    except (ClientError, OSError):
        link.break_off()  # which whoever receives notices


def _send_waiting(sock: socket.socket, data: bytes, wait: Callable[[], None]) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            wait()


def _break_at_close(sock: socket.socket, on: bool) -> None:
    """Whether its closing says that it broke, also when this process is killed.

    Half of an answer must not look like all of it.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))


def _masking() -> Callable[[bytes, bytes], bytes]:
    try:
        from websockets.speedups import apply_mask
    except ImportError:
        from websockets.utils import apply_mask
    return apply_mask
