"""Port-forward over a WebSocket: exact bytes, half-close, and clean-up after a disconnect."""

import asyncio
import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import unix_connect as async_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from controller.kinds.observed.observed import State
from controller.service.sandbox.port_forward import PortLimits
from tests.daemon import wait_for
from tests.helpers_api import ApiStack, make_api

BASE = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"
MIB = 1 << 20
OPTIONS = {"max_size": None, "compression": None, "ping_interval": None}
Serve = Callable[[socket.socket], None]


@pytest.fixture
def running_api(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    """A served API with a running sandbox and a low limit on connections."""
    api = make_api(tmp_path, connections=PortLimits(total=64, per_sandbox=50))
    server = api.server()
    server.start()
    api.apply()
    api.view.show(api.sandbox())
    try:
        yield api
    finally:
        server.stop()
        api.files.close()
        api.store.close()


@contextlib.contextmanager
def listening(api: ApiStack, serve: Serve, port: int = 80) -> Iterator[None]:
    """Serve each connection of that port in a thread, as a program in the sandbox."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    api.ports.listen(port, listener.getsockname()[1])
    threads: list[threading.Thread] = []

    def one(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            serve(sock)

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(sock,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [accepting, *threads]:
            thread.join()


def echo(sock: socket.socket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)


def connect(api: ApiStack, port: int = 80) -> ClientConnection:
    return unix_connect(str(api.socket), uri=f"ws://paddock{BASE}/portforward?port={port}", **OPTIONS)


def freed(api: ApiStack) -> None:
    wait_for("all is freed", lambda: not api.services.forward.slots.used_count)


def test_forwarded_bytes_and_half_close(running_api: ApiStack) -> None:
    with listening(running_api, echo), connect(running_api) as link:
        link.send(b"\x00\xff")
        assert link.recv() == b"\x00\xff"
        link.send("end")
        assert link.recv() == "end"
        with pytest.raises(ConnectionClosed):
            link.recv()
    freed(running_api)


def test_a_hundred_mebibytes_each_way_are_the_same(running_api: ApiStack) -> None:
    piece = os.urandom(MIB)
    hexdigest = hashlib.sha256(piece * 100).hexdigest()

    async def there_and_back() -> str:
        sha256 = hashlib.sha256()
        uri = f"ws://paddock{BASE}/portforward?port=80"
        # (The library's threaded client holds one lock for both directions: both full, it waits for itself.)
        async with async_connect(str(running_api.socket), uri=uri, **OPTIONS) as link:

            async def send() -> None:
                for _ in range(100):
                    for at in range(0, MIB, 1 << 18):
                        await link.send(piece[at : at + (1 << 18)])
                await link.send("end")

            sending = asyncio.create_task(send())
            while isinstance(data := await link.recv(), bytes):
                sha256.update(data)
            await sending
        return sha256.hexdigest()

    with listening(running_api, echo):
        assert asyncio.run(there_and_back()) == hexdigest
    freed(running_api)


def test_sandbox_half_close_keeps_other_direction(running_api: ApiStack) -> None:
    heard: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        sock.sendall(b"bye")
        sock.shutdown(socket.SHUT_WR)
        while data := sock.recv(100):
            heard.append(data)

    with listening(running_api, serve), connect(running_api) as link:
        assert (link.recv(), link.recv()) == (b"bye", "end")
        link.send(b"still ")
        link.send(b"here")
        link.send("end")
        with pytest.raises(ConnectionClosed):
            link.recv()
    assert b"".join(heard) == b"still here"
    freed(running_api)


def test_disconnect_ends_connection_in_sandbox(running_api: ApiStack) -> None:
    over = threading.Event()

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            echo(sock)
        over.set()

    with listening(running_api, serve), connect(running_api) as link:
        link.send(b"x")
        assert link.recv() == b"x"
        link.socket.shutdown(socket.SHUT_RDWR)  # as if it were killed
        assert over.wait(60)
        freed(running_api)


def test_stopped_sandbox_ends_the_client(running_api: ApiStack) -> None:
    def serve(sock: socket.socket) -> None:
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset

    with listening(running_api, serve), connect(running_api) as link:
        link.send(b"x")
        with pytest.raises(ConnectionClosed):
            link.recv()
    freed(running_api)


def test_stalled_client_does_not_block_others(running_api: ApiStack) -> None:
    stop = threading.Event()

    def serve(sock: socket.socket) -> None:
        while not stop.is_set():
            sock.sendall(b"x" * 65536)

    with listening(running_api, serve), listening(running_api, echo, 81), connect(running_api) as stalled:
        for _ in range(20):
            with connect(running_api, 81) as link:
                link.send(b"quick")
                assert link.recv() == b"quick"
        stop.set()
        stalled.socket.shutdown(socket.SHUT_RDWR)
        freed(running_api)


def test_connections_are_limited(running_api: ApiStack) -> None:
    with listening(running_api, echo), contextlib.ExitStack() as stack:
        links = [stack.enter_context(connect(running_api)) for _ in range(50)]
        for number, link in enumerate(links):
            link.send(b"%d" % number)
        assert [link.recv() for link in links] == [b"%d" % number for number in range(50)]
        with pytest.raises(InvalidStatus) as refusal:
            connect(running_api)
        assert refusal.value.response.status_code == 429
        assert b"port_connections_per_sandbox" in (refusal.value.response.body or b"")
    freed(running_api)
    assert len(running_api.woken) >= 100  # each one began and ended a use


@pytest.mark.parametrize(("port", "code", "words"), [(81, 409, b"nothing listens on port 81"), (0, 400, b"65535")])
def test_unreachable_port_is_refused(running_api: ApiStack, port: int, code: int, words: bytes) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        connect(running_api, port)
    assert refusal.value.response.status_code == code
    assert words in (refusal.value.response.body or b"")
    freed(running_api)


def test_stopped_sandbox_is_refused(running_api: ApiStack) -> None:
    running_api.set_ready("False", "Completed")
    running_api.view.show(running_api.sandbox(), State.EXITED)
    with pytest.raises(InvalidStatus) as refusal:
        connect(running_api)
    assert refusal.value.response.status_code == 409
