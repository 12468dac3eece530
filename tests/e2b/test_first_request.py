"""The listener: nothing is built before the first connection, and a failure is not its end."""

import socket
import subprocess
import sys

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from controller.api.server.first_request import FirstRequestServer
from controller.api.server.server import SocketTaken


def test_the_daemon_imports_nothing_for_it() -> None:
    code = "import sys, controller.app.daemon; print([each for each in sys.modules if 'controller.e2b' in each])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_it_is_built_at_the_first_connection() -> None:
    calls: list[int] = []

    def make() -> ASGIApp:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("the store is away")
        return PlainTextResponse("hello")

    server = FirstRequestServer(make, ("127.0.0.1", 0), "e2b_address")
    server.start()
    try:
        assert not calls
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url)
        assert httpx.get(server.url).text == "hello"
        assert httpx.get(server.url).text == "hello"
        assert len(calls) == 2
    finally:
        server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_it_ends_before_its_first_request() -> None:
    server = FirstRequestServer(lambda: PlainTextResponse(""), ("127.0.0.1", 0), "e2b_address")
    server.start()
    server.stop()
    server.stop()
    with socket.socket() as again:
        again.bind(("127.0.0.1", server.port))


def test_beyond_the_loopback_it_needs_tls() -> None:
    server = FirstRequestServer(lambda: PlainTextResponse(""), ("0.0.0.0", 0), "e2b_address")
    with pytest.raises(SocketTaken, match="without TLS"):
        server.start()
