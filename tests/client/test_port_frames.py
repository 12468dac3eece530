"""A forwarded port's frames, from a daemon that stops at any byte: the reader ends."""

import base64
import contextlib
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import Paddock, PaddockError
from paddock._client.port_forward import PortConnection
from tests.byte_by_byte import begin, outcome

FRAMES = b"\x82\x03abc" + b"\x89\x00" + b"\x82\x7e\x00\x01d" + b"\x81\x03end"
LENGTHS = b"\0\0\0\3abc" + b"\0\0\0\1d" + b"\0\0\0\0"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@contextlib.contextmanager
def connected(folder: Path, protocol: bytes) -> Iterator[tuple[PortConnection, socket.socket]]:
    """A connection of the SDK, and the daemon's side of it."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        path = folder / f"{len(list(folder.iterdir()))}.sock"
        listener.bind(str(path))
        listener.listen()
        connecting = begin(lambda: Paddock(f"unix://{path}").sandbox("box").connect(80))
        sock = stack.enter_context(listener.accept()[0])
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1)
        key = head.lower().partition(b"sec-websocket-key: ")[0]
        key = head[len(key) + len(b"sec-websocket-key: ") :].partition(b"\r\n")[0]
        accept = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
        sock.sendall(
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n" % (accept, protocol)
        )
        link = outcome(connecting)
        assert isinstance(link, PortConnection), link
        stack.callback(link.close)
        yield link, sock


@pytest.mark.parametrize(
    ("protocol", "whole"), [(b"portforward.paddock", FRAMES), (b"raw.portforward.paddock", LENGTHS)]
)
def test_reading_a_port_ends_wherever_it_stops(tmp_path: Path, protocol: bytes, whole: bytes) -> None:
    for count in range(len(whole) + 1):
        for stop in ("cut", "close"):
            with connected(tmp_path, protocol) as (link, sock):
                reading = begin(lambda link=link: b"".join(iter(link.receive, b"")))  # type: ignore[misc]
                for byte in whole[:count]:
                    sock.sendall(bytes([byte]))
                if stop == "cut" and count < len(whole):
                    link.break_off()
                elif stop == "close":
                    sock.shutdown(socket.SHUT_WR)
                result = outcome(reading)
                if count == len(whole):
                    assert result == b"abcd"
                else:
                    assert isinstance(result, PaddockError), (whole[:count], stop, result)
