"""Archives between this host's files and a box of the same host, without a copy in between."""

import json
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from controller.archive.pack import Piece, Span
from controller.client.connection import full_path
from controller.client.errors import ClientError, Refused, refusal
from controller.client.handshake import connected, protocol, shake_hands
from controller.client.server import Server
from controller.client.splice import Pipe, can_splice
from controller.client.transfer import BROKE, PIECE_BYTES

_PROTOCOL = "raw.files.paddock"
_LENGTH = struct.Struct(">I")
_SENDING_BYTES = 1 << 20  # under way to the daemon; the system gives less if it is set to
_ANSWER_BYTES = 1 << 24
_NOT_SO = 406


class Haul:
    """One archive on its way. It is an Incoming: see transfer.py."""

    def __init__(self, sock: socket.socket, pipe: Pipe) -> None:
        self._sock, self._pipe = sock, pipe
        self._left = 0  # of the piece that is coming
        self._ended = False

    def read(self, count: int) -> bytes:
        """1 to `count` bytes, b"" at the end. Raises ClientError when it broke off before."""
        if self._is_over():
            return b""
        try:
            data = self._sock.recv(min(count, self._left, PIECE_BYTES))
        except OSError as error:
            raise ClientError(BROKE) from error
        self._take(len(data))
        return data

    def pour(self, fd: int, count: int) -> int:
        """The same into a file; gives how many. Raises ClientError, and OSError of the file."""
        if self._is_over():
            return 0
        try:
            come = self._pipe.fill(self._sock, min(count, self._left))
        except OSError as error:
            raise ClientError(BROKE) from error
        self._take(come)
        self._pipe.drain(fd, come)
        return come

    def pieces(self) -> Iterator[bytes]:
        """The whole of it."""
        while data := self.read(PIECE_BYTES):
            yield data

    def send(self, pieces: Iterable[Piece]) -> None:
        """All of these, and the end. A daemon that takes no more has answered. Raises OSError of files."""
        for each in pieces:
            if not (self._sent_span(each) if isinstance(each, Span) else self._sent(each)):
                return
        self._all(_LENGTH.pack(0))

    def answer(self) -> Any:
        """What the daemon says in the end. Raises Refused, ClientError."""
        size = self._length()
        if size > _ANSWER_BYTES:
            raise ClientError("the answer is not as Paddock gives it; is --server right?")
        found = json.loads(self._exactly(size))
        if found.get("kind") == "Status":
            raise refusal(found, int(found["code"]))
        return found

    def _sent(self, data: bytes) -> bool:
        return not data or (self._all(_LENGTH.pack(len(data))) and self._all(data))

    def _sent_span(self, span: Span) -> bool:
        count = self._pipe.fill(span.fd, span.size)
        if not count:
            return True
        if not self._all(_LENGTH.pack(count)):
            return False
        with suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.drain(self._sock, count)
            return True
        return False

    def _all(self, data: bytes) -> bool:
        """Whether the daemon has taken it."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(data)
            return True
        return False

    def _is_over(self) -> bool:
        if not self._left and not self._ended:
            self._left = self._length()
            self._ended = not self._left
        return self._ended

    def _take(self, count: int) -> None:
        if not count:
            raise ClientError(BROKE)
        self._left -= count

    def _length(self) -> int:
        size: int = _LENGTH.unpack(self._exactly(_LENGTH.size))[0]
        return size

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = self._sock.recv(count - len(data))
            except OSError as error:
                raise ClientError(BROKE) from error
            if not piece:
                raise ClientError(BROKE)
            data += piece
        return data


@contextmanager
def haul(server: Server, files_path: str, query: Mapping[str, str]) -> Iterator[Haul | None]:
    """None: it is not carried so, ask over HTTP. Raises Refused, Unreachable, ClientError."""
    with ExitStack() as held:
        made = _opened(server, files_path, query, held) if server.socket and can_splice() else None
        yield made


def _opened(server: Server, files_path: str, query: Mapping[str, str], held: ExitStack) -> Haul | None:
    try:
        pipe = held.enter_context(Pipe())
    except OSError:  # no more handles
        return None
    sock = held.enter_context(connected(server))
    target = f"{full_path(files_path)}/haul?{urlencode(query, errors='surrogateescape')}"
    try:
        file, headers = shake_hands(sock, server, target, [_PROTOCOL])
    except Refused as error:
        if error.code == _NOT_SO or not error.reason:  # a daemon that knows nothing of it gives no reason
            return None
        raise
    file.close()
    if protocol(headers) != _PROTOCOL:
        return None
    sock.settimeout(None)
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENDING_BYTES)
    return Haul(sock, pipe)
