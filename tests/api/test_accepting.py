"""Limits on silent connections, in total and per holder."""

import errno
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from controller.api.server import connection_limiter, request_deadline
from controller.api.server.connection_limiter import ConnectionLimiter, connection_holder
from controller.api.server.server import bind
from tests.api.listeners import client
from tests.daemon import wait_for
from tests.helpers_api import ApiStack

BOUND = 21  # 4 for the protocol, and some more


@pytest.fixture
def limiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectionLimiter]:
    monkeypatch.setattr(request_deadline, "MOST_CONNECTIONS", 4)
    with closing(ConnectionLimiter(bind(tmp_path / "door"), share=1.0)) as created:
        created.setblocking(False)
        yield created


def connect(limiter: ConnectionLimiter) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(limiter.getsockname())
    return connection


def accepted(limiter: ConnectionLimiter) -> list[socket.socket]:
    """All that it lets in now."""
    observed = []
    while True:
        try:
            observed.append(limiter.accept()[0])
        except BlockingIOError:
            return observed


def test_connections_are_limited_until_one_ends(limiter: ConnectionLimiter) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(limiter)) for _ in range(BOUND + 5)]
        inside = accepted(limiter)
        assert len(inside) == BOUND
        assert [connection.recv(1) for connection in clients[BOUND:]] == [b""] * 5, "they are ended, not left to wait"
        for entry in inside[:3]:
            entry.close()
            entry.close()  # again is nothing
        for _ in range(5):
            stack.enter_context(connect(limiter))
        again = accepted(limiter)
        assert len(again) == 3
        for one_connection in (*inside, *again):
            one_connection.close()


def test_one_holder_has_a_share(limiter: ConnectionLimiter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_deadline, "MOST_CONNECTIONS", 100)
    monkeypatch.setattr(limiter, "_share", 0.04)
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connect(limiter))
        monkeypatch.setattr(connection_limiter, "connection_holder", lambda _: "first")
        mine = accepted(limiter)
        assert len(mine) == BOUND
        stack.enter_context(connect(limiter))
        monkeypatch.setattr(connection_limiter, "connection_holder", lambda _: "second")
        connections = accepted(limiter)
        assert len(connections) == 1
        for connection in (*mine, *connections):
            connection.close()


def test_out_of_files_raises_once_and_pauses(limiter: ConnectionLimiter, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", none_left)
    with pytest.raises(OSError, match="Too many open files"):
        limiter.accept()
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            limiter.accept()


@pytest.mark.parametrize(
    ("address", "holder"),
    [
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("192.0.2.7", ip_network("192.0.2.7/32")),
        ("::ffff:192.0.2.7", ip_network("192.0.2.7/32")),
        ("2001:db8:1:2:3::4", ip_network("2001:db8:1:2::/64")),
        ("fe80::1%eth0", ip_network("fe80::/64")),
    ],
)
def test_whose_a_connection_is(address: str, holder: object) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    assert connection_holder(SimpleNamespace(family=family, getpeername=lambda: (address, 4242))) == holder


def test_connections_use_a_quarter_of_all_files(limiter: ConnectionLimiter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 24))
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(connect(limiter))
        inside = accepted(limiter)
        assert len(inside) == 6
        for connection in inside:
            connection.close()


def test_listener_full_of_silent_clients_recovers(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_deadline, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 0.5)
    with ExitStack() as stack:
        for _ in range(3 * BOUND):
            link = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            link.connect(str(served.socket))
        with client(served) as created:
            wait_for("it answers", lambda: answers(created))


def answers(made: httpx.Client) -> bool:
    try:
        return made.get("/healthz").status_code == 200
    except httpx.TransportError:  # it is ended without a word
        return False
