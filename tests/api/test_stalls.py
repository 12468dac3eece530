"""Stalled clients are cut off and free their resources; slow readers are not."""

import asyncio
import base64
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.server.stalled_clients import StalledClients, unsent_bytes
from controller.kinds.common.chunk import Chunk
from controller.service.exec.exec_limits import ExecRules
from tests.api.test_port_forward import listening
from tests.daemon import wait_for
from tests.helpers_api import ApiStack, make_api

SANDBOXES = "/apis/paddock/v1alpha1/namespaces/default/sandboxes"
SANDBOX = f"{SANDBOXES}/quickstart"
STALL_SECONDS = 0.4


class Flood(Iterator[Chunk]):
    """Output without an end, until it is closed."""

    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed

    def __next__(self) -> Chunk:
        if self._closed.is_set():
            raise StopIteration
        return Chunk("stdout", b"x" * 65536)

    def close(self) -> None:
        self._closed.set()


@pytest.fixture
def sandbox(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    """A served API with a running sandbox, endless streams and a short stall time-out."""
    api = make_api(tmp_path)
    server = api.server(stall_seconds=STALL_SECONDS)
    server.start()
    api.apply()
    root = api.files.root(api.view.show(api.sandbox()).id)
    (root / "tmp/much").write_bytes(b"x" * (8 << 20))
    api.streams.log = api.streams.run = lambda **_: Flood(api.streams.closed)
    try:
        yield api
    finally:
        server.stop()
        api.files.close()
        api.store.close()


def ask(api: ApiStack, path: str, first: int = 100) -> socket.socket:
    """Send a request or WebSocket handshake and read only the first bytes of the response."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(api.socket))
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    if "as=raw" in path:
        upgrade += "Sec-WebSocket-Protocol: raw.portforward.paddock\r\n"
    socketed = any(entry in path for entry in ("/exec", "/portforward"))
    path = path.replace("&as=raw", "")
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: paddock\r\n{upgrade if socketed else ''}\r\n".encode())
    assert b" 101 " in (head := connection.recv(first)) or b" 200 " in head
    return connection


def pour(sock: socket.socket) -> None:
    while True:
        sock.sendall(b"x" * 65536)


def commands(api: ApiStack) -> bool:
    return bool(api.services.sandbox_streams._exec_slots._taken)


HELD: dict[str, tuple[str, Callable[[ApiStack], Any]]] = {
    "logs": (f"{SANDBOX}/logs?follow=true", lambda api: not api.streams.closed.is_set()),
    "exec": (f"{SANDBOX}/exec?command=yes", lambda api: commands(api) or not api.streams.closed.is_set()),
    "file": (
        f"{SANDBOX}/files?path=/tmp/much",
        lambda api: api.services.files.slots.used_count or api.files.open,
    ),
    "archive": (
        f"{SANDBOX}/files/archive?path=/tmp",
        lambda api: api.services.files.slots.used_count or api.files.open,
    ),
    "port": (f"{SANDBOX}/portforward?port=80", lambda api: api.services.forward.slots.used_count),
    "raw port": (f"{SANDBOX}/portforward?port=80&as=raw", lambda api: api.services.forward.slots.used_count),
    "watch": (f"{SANDBOXES}?watch=1", lambda api: api.services.watches.count),
}


@pytest.mark.parametrize("what", HELD)
def test_stalled_client_frees_its_resources(sandbox: ApiStack, what: str) -> None:
    path, reserved = HELD[what]
    sandbox.services.sandbox_streams.rules = ExecRules(pause_seconds=STALL_SECONDS)
    with listening(sandbox, pour), ask(sandbox, path):
        if what == "watch":
            wait_for("it is open", lambda: reserved(sandbox))
            for number in range(12):  # fewer than would make it fall behind
                sandbox.change(annotations={"big": "x" * 60_000, "number": str(number)})
        wait_for("all is freed", lambda: not reserved(sandbox))


def test_paused_reader_of_a_command_loses_nothing(sandbox: ApiStack) -> None:
    sandbox.streams.run = lambda **_: iter([*(Chunk("stdout", b"x" * 65536) for _ in range(64)), Chunk("exit", b"0")])
    path, log = HELD["logs"]
    with ask(sandbox, HELD["exec"][0]) as paused, ask(sandbox, path):
        wait_for("a neighbour that stalls is cut", lambda: not log(sandbox))
        paused.settimeout(30)
        received = bytearray()
        while b'"status": "Success"' not in received[-4096:]:
            piece = paused.recv(1 << 20)
            assert piece, "it ended before its result"
            received += piece
    assert received.partition(b"\r\n\r\n")[2].count(b"x") == 64 * 65536


def frame(data: bytes) -> bytes:
    """Return a client's binary frame, with a mask of zeros."""
    return struct.pack(">BBH4x", 0x82, 0x80 | 126, len(data)) + data


@pytest.mark.parametrize("what", ["exec", "port", "raw port"])
def test_unread_disconnect_is_noticed(sandbox: ApiStack, what: str) -> None:
    never = threading.Event()
    sandbox.streams.run = sandbox.streams.endless
    path, reserved = HELD[what]
    piece = struct.pack(">I", 60_000) + bytes(60_000) if what == "raw port" else frame(b"x" * 60_000)
    with (
        listening(sandbox, lambda sock: _wait_for_the_end(sock, never)),
        ask(sandbox, path + "&stdin=true" * (what == "exec")) as link,
    ):
        link.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(10_000):
                link.sendall(piece)
        link.close()
        wait_for("all is freed", lambda: not reserved(sandbox))
        never.set()


def _wait_for_the_end(_sock: socket.socket, over: threading.Event) -> None:
    over.wait(60)


class Transport:
    """A transport like asyncio's, over a socket without a loop: unsent bytes are buffered."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._waiting, self.aborted = sock, b"", False
        sock.setblocking(False)

    def get_extra_info(self, _name: str) -> socket.socket:
        return self._sock

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes) -> None:
        self._waiting += data
        with contextlib.suppress(BlockingIOError):
            while self._waiting:
                self._waiting = self._waiting[self._sock.send(self._waiting) :]

    def pause_reading(self) -> None: ...

    def abort(self) -> None:
        self._waiting, self.aborted = b"", True


@pytest.fixture
def pair() -> Iterator[tuple[Transport, socket.socket, StalledClients, Any]]:
    ours, connection = socket.socketpair()
    transport, clients = Transport(ours), StalledClients(2.0)
    clients._poll_later = lambda _loop: None  # type: ignore[method-assign] # by hand
    with ours, connection:
        yield transport, connection, clients, _watched(clients, transport)


def _watched(clients: StalledClients, transport: Any) -> Any:
    async def watch() -> Any:
        return clients.watch(transport)

    return asyncio.run(watch())


def test_slow_reader_continues_until_it_stops(pair: tuple[Transport, socket.socket, StalledClients, Any]) -> None:
    transport, reader, clients, link = pair
    link.write(b"x" * (4 << 20))
    for second in range(50):
        clients.poll(second)
        assert reader.recv(40_000), "less than what makes the socket writable again"
        link.write(b"more")
    assert not transport.aborted
    clients.poll(51.0)
    link.write(b"what is written is no progress")
    clients.poll(52.9)
    assert not transport.aborted
    clients.poll(53.1)
    assert transport.aborted


def test_pause_is_allowed_until_the_reader_leaves(
    pair: tuple[Transport, socket.socket, StalledClients, Any],
) -> None:
    transport, reader, clients, link = pair
    link.pause_seconds = 100.0
    link.write(b"x" * (4 << 20))
    for second in range(99):
        clients.poll(second)
    assert not transport.aborted
    reader.shutdown(socket.SHUT_RDWR)
    clients.poll(99.0)
    assert transport.aborted


def test_idle_reader_is_not_stalled(pair: tuple[Transport, socket.socket, StalledClients, Any]) -> None:
    transport, _, clients, link = pair
    link.write(b"x" * 1000)  # the socket has taken all of it
    for second in range(50):
        clients.poll(second)
    assert not transport.aborted


def test_disconnect_is_cut_only_while_not_reading(
    pair: tuple[Transport, socket.socket, StalledClients, Any],
) -> None:
    transport, reader, clients, link = pair
    link.pause_reading()
    for second in range(10):
        clients.poll(second)
    assert not transport.aborted, "it is still there"
    reader.close()
    clients.poll(10.0)
    clients.poll(12.5)
    assert transport.aborted


def test_unsent_bytes_fall_as_the_other_side_reads() -> None:
    ours, connection = socket.socketpair()
    with ours, connection:
        assert unsent_bytes(ours) == 0
        ours.sendall(b"x" * 5000)
        assert unsent_bytes(ours) >= 5000
        connection.recv(5000)
        assert unsent_bytes(ours) == 0
        ours.sendall(b"x")
    assert unsent_bytes(ours) == 0, "closed"


def test_unsent_bytes_over_tcp_fall_as_they_are_acknowledged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        connection, _ = listener.accept()
        with connection:
            ours.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    ours.send(b"x" * 65536)
            full = unsent_bytes(ours)
            assert full > 0
            while unsent_bytes(ours) >= full:
                assert connection.recv(65536)
