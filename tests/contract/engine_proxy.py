"""A Unix socket in front of the engine's, which a test can cut, make answer nonsense, or let hang."""

import contextlib
import os
import re
import socket
import threading
from pathlib import Path

ENGINE = "/var/run/docker.sock"
_PIECE = 64 << 10


class Proxy:
    """Forwards connections (one request each) until told otherwise. `requests` are the request lines seen."""

    def __init__(self, folder: Path, target: str = ENGINE) -> None:
        self.path = str(folder / "engine.sock")
        self.base_url = f"unix://{self.path}"
        self.requests: list[str] = []
        self._target = target
        self._lock = threading.Lock()
        self._answers: list[tuple[re.Pattern[str], int, str]] = []
        self._hanging: list[re.Pattern[str]] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def up(self) -> "Proxy":
        """Listen (again)."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(64)
        self._listener = listener
        self._spawn(self._accept, listener)
        return self

    def cut(self) -> None:
        """Stop listening and break every connection, as a stopping engine does."""
        if self._listener is not None:
            os.unlink(self.path)
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener = None
        self.break_connections()

    def break_connections(self) -> None:
        """Break what is open; new connections are welcome."""
        with self._lock:
            opened = list(self._open)
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, pattern: str, status: int, body: str = '{"message":"out of order"}') -> None:
        """From now on requests whose first line matches get this answer."""
        self._answers.append((re.compile(pattern), status, body))

    def hang(self, pattern: str) -> None:
        """From now on requests whose first line matches get no answer."""
        self._hanging.append(re.compile(pattern))

    def behave(self) -> None:
        """Forward everything again; what hangs is broken."""
        self._answers.clear()
        self._hanging.clear()

    def end(self) -> None:
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with self._kept(client):
            head, remaining = _read_head(client)
            if not head:
                return
            line = head.split(b"\r\n", 1)[0].decode()
            self.requests.append(line)
            for pattern, status, body in self._answers:
                if pattern.search(line):
                    client.sendall(_answer(status, body))
                    return
            if any(entry.search(line) for entry in self._hanging):
                client.recv(1)
                while client.recv(_PIECE):
                    pass
                return
            self._forward(client, head.replace(b"Connection: keep-alive", b"Connection: close") + remaining)

    def _forward(self, client: socket.socket, request: bytes) -> None:
        engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._kept(engine):
            engine.connect(self._target)
            engine.sendall(request)
            upward = threading.Thread(target=_pipe, args=(client, engine, False), daemon=True)
            upward.start()
            _pipe(engine, client, True)
            upward.join()

    @contextlib.contextmanager
    def _kept(self, sock: socket.socket):
        with self._lock:
            self._open.add(sock)
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(_PIECE)
        if not piece:
            return b"", b""
        data += piece
    head, _, remaining = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", remaining


def _pipe(source: socket.socket, target: socket.socket, both: bool) -> None:
    """Copy until the source ends; then tell the target, and with `both` break both ends."""
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    if both:
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _answer(status: int, body: str) -> bytes:
    text = body.encode()
    head = f"HTTP/1.1 {status} Out of order\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
