"""Ends of connections: over TLS, at shutdown, and independent of each other."""

import base64
import os
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.server import connection_limiter, request_deadline
from controller.api.server.server import ApiServer
from controller.api.server.stalled_clients import unsent_bytes
from controller.api.server.tcp import TcpServer
from tests.api.listeners import certificate
from tests.daemon import wait_for

MUCH = 40
STALL_SECONDS = 0.4


async def app(scope: Any, receive: Any, send: Any) -> None:
    """An application whose /much is larger than any socket buffer; a WebSocket gets as much."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(MUCH):
            await send({"type": "websocket.send", "bytes": b"x" * (1 << 16)})
        await receive()
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(MUCH if scope["path"] == "/much" else 1):
        await send({"type": "http.response.body", "body": b"x" * (1 << 18), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Address of a TLS listener with a short stall time-out."""
    monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 3.0)  # a handshake has as long, on a loaded machine, too
    monkeypatch.setattr(connection_limiter, "_TLS_SHUTDOWN_SECONDS", 0.5)
    cert, key = certificate(tmp_path)
    server = TcpServer(app, "127.0.0.1", 0, cert=cert, key=key, grace_seconds=1, stall_seconds=STALL_SECONDS)
    server.start()
    yield "127.0.0.1", int(server.url.rpartition(":")[2])
    server.stop()


def connected(address: tuple[str, int]) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(address, timeout=60))


def asked(address: tuple[str, int], path: str) -> ssl.SSLSocket:
    ssl_socket = connected(address)
    ssl_socket.sendall(f"GET {path} HTTP/1.1\r\nHost: paddock\r\nConnection: close\r\n\r\n".encode())
    return ssl_socket


def held(address: tuple[str, int]) -> int:
    """Return the server's open connections: they have an inode and do not listen (proc(5))."""
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    ours = [line for line in lines if int(line[1].partition(":")[2], 16) == address[1] and line[3] != "0A"]
    return sum(our[9] != "0" for our in ours)


def is_over(link: socket.socket) -> bool:
    """Return true if the peer has closed, even with unread data."""
    poll = select.poll()
    poll.register(link, select.POLLRDHUP)
    return bool(poll.poll(0))


def test_stalled_tls_client_is_cut_off(address: tuple[str, int]) -> None:
    for _ in range(5):
        with asked(address, "/little") as link:
            while link.recv(1 << 16):
                pass
    wait_for("their ends are gone", lambda: not held(address))
    with asked(address, "/much") as stuck:
        assert select.select([stuck], [], [], 20)[0], "it is served"
        wait_for("it is ended", lambda: not held(address), 60)


@pytest.mark.parametrize("shaken", [False, True], ids=["no handshake", "no request"])
def test_silent_tls_client_is_closed(address: tuple[str, int], *, shaken: bool) -> None:
    with connected(address) if shaken else socket.create_connection(address, timeout=60) as silent:
        wait_for("it is ended", lambda: is_over(silent))


def test_closed_websocket_does_not_break_shutdown(tmp_path: Path) -> None:
    """An error of the listener's thread would fail this test."""
    door = ApiServer(app, tmp_path / "door", grace_seconds=1)
    door.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(20)
        link.connect(str(tmp_path / "door"))
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13"
        link.sendall(f"GET / HTTP/1.1\r\nHost: paddock\r\n{upgrade}\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        assert b" 101 " in link.recv(100)
        link.sendall(b"\x88\x80\0\0\0\0")  # good-bye; and nothing more is read
        wait_for("the door has read it", lambda: not unsent_bytes(link))
        door.stop()
