"""Idle connections are closed; slow responses and WebSockets are not."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from websockets.sync.client import unix_connect

from controller.api.server import request_deadline
from controller.api.server.server import ApiServer
from tests.helpers_api import ApiStack

PATH = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"


@pytest.fixture
def hasty(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiStack]:
    """A running sandbox, behind a listener with a zero request deadline."""
    monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 1.5)  # in which a loaded machine has asked
    monkeypatch.setattr(request_deadline, "STALL_SECONDS", 1.5)
    api.apply()
    api.view.show(api.sandbox())
    server = ApiServer(api.app, api.socket, grace_seconds=1)
    server.start()
    yield api
    server.stop()


@contextmanager
def connected(api: ApiStack) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as created:
        created.settimeout(30)
        created.connect(str(api.socket))
        yield created


def until_closed(made: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection; raises TimeoutError if it never does."""
    data = b""
    while True:
        try:
            piece = made.recv(4096)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


@pytest.mark.parametrize(
    "sent", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "], ids=["none", "a", "half"]
)
def test_missing_request_closes_connection(hasty: ApiStack, sent: bytes) -> None:
    with connected(hasty) as created:
        created.sendall(sent)
        assert until_closed(created).startswith(b"HTTP/1.1 408 ")


def answer_to_half_a_body(api: ApiStack) -> bytes:
    """Return all bytes of an answer that needs no body; more of the body comes after it."""
    with connected(api) as created:
        created.sendall(
            b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n1"
        )
        data = created.recv(4096)
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not wait for more before it closes
            created.sendall(b"2")
        return data + until_closed(created)


def test_rest_of_answered_request_is_not_awaited(hasty: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 60)  # longer than the client waits for the end
    answers: list[bytes] = []
    for seconds in (0.5, 4, 20):  # until the machine, however loaded, has answered before
        monkeypatch.setattr(request_deadline, "STALL_SECONDS", seconds)
        answers.append(answer_to_half_a_body(hasty))
        if not answers[-1].startswith(b"HTTP/1.1 408 "):
            break
    assert answers[-1].startswith(b"HTTP/1.1 405 ")


def test_slow_response_is_not_cut_off(hasty: ApiStack) -> None:
    hasty.streams.log = hasty.streams.run = hasty.streams.endless
    transport = httpx.HTTPTransport(uds=str(hasty.socket), verify=False)
    with (
        httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client,
        client.stream("GET", f"{PATH}/logs?follow=true") as answer,
        unix_connect(str(hasty.socket), uri=f"ws://paddock{PATH}/exec?command=cat&stdin=true") as opened,
    ):
        lines = answer.iter_raw()
        assert next(lines) == b"first\n"
        assert opened.recv() == b"\x01"
        assert opened.recv() == b"\x01first\n"
        with connected(hasty) as idle:  # the clock of this test: it began after the others
            until_closed(idle)
        assert opened.ping().wait(30)
        assert not hasty.streams.closed.is_set()
