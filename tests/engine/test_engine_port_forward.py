"""Connections into real sandboxes without a network."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.ports import StreamError
from tests.contract.engine_hosts import EngineHost, docker_host
from tests.daemon import wait_for

pytestmark = pytest.mark.docker
SERVER = """
import socket, threading
def serve(family, address):
    s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(address); s.listen(16)
    while True:
        c, _ = s.accept()
        data = b""
        while piece := c.recv(65536): data += piece
        c.sendall(b"heard " + data); c.close()
threading.Thread(target=serve, args=(socket.AF_INET, ("127.0.0.1", 8500))).start()
"""


@pytest.fixture
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


def test_a_port_of_a_sandbox_without_network(host: EngineHost) -> None:
    sandbox = host.running(host.new_uid(), image="paddock/python:1", command=("python3", "-c", SERVER))
    ports = host.engine.ports  # type: ignore[attr-defined]

    def connected() -> object:
        try:
            return ports.connect(sandbox, 8500)
        except StreamError:
            return None

    with wait_for("the server listens", connected) as link:
        link.sendall(b"x" * 100_000)
        link.shutdown(1)
        observed = b""
        while piece := link.recv(65536):
            observed += piece
    assert observed == b"heard " + b"x" * 100_000
    with pytest.raises(StreamError, match="nothing listens on port 8501"):
        ports.connect(sandbox, 8501)
    with pytest.raises(StreamError, match="no longer belongs to container"):
        ports.connect(replace(sandbox, pid=os.getpid()), 8500)
    host.hand.kill(sandbox.name)
    with pytest.raises(StreamError, match="can't be reached"):
        wait_for("it is gone", lambda: ports.connect(sandbox, 8500) and None)
