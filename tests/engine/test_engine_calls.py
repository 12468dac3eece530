"""Calls with a whole answer: what a connection is kept for, and what its end in the meantime does."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from controller.engine.docker.errors import Fault
from controller.engine.docker.raw_http import Connections


class Engine(ThreadingHTTPServer):
    """Answers with the request itself, and counts connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections, self.closes, self.status = 0, False, 200

    @property
    def base_url(self) -> str:
        return f"tcp://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        body = json.dumps({"message": f"{self.command} {self.path} {content}".strip()}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.close_connection or self.server.closes  # and nothing has told of it

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as server, ThreadPoolExecutor(1) as thread:
        thread.submit(server.serve_forever, 0.01)
        try:
            yield server
        finally:
            server.shutdown()


def test_reads_share_a_connection_and_changes_do_not(engine: Engine) -> None:
    connections = Connections(engine.base_url, 4)
    answers = [connections.read(f"/{number}", 10) for number in range(3)]
    assert json.loads(answers[-1]) == {"message": "GET /2"}
    assert engine.connections == 1
    assert json.loads(connections.change("/start", {"a": 1}, 10)) == {"message": 'POST /start {"a": 1}'}
    assert json.loads(connections.change("/start", None, 10)) == {"message": "POST /start"}
    assert engine.connections == 3
    connections.close()


def test_a_connection_closed_while_idle_is_replaced(engine: Engine) -> None:
    engine.closes = True
    connections = Connections(engine.base_url, 4)
    assert [json.loads(connections.read(f"/{number}", 10))["message"] for number in range(3)] == [
        "GET /0",
        "GET /1",
        "GET /2",
    ]
    connections.close()


def test_a_refusal_is_a_fault_and_keeps_the_connection(engine: Engine) -> None:
    connections = Connections(engine.base_url, 4)
    engine.status = 404
    with pytest.raises(Fault) as gone:
        connections.read("/none", 10)
    assert (gone.value.is_gone, gone.value.message) == (True, "GET /none")
    engine.status = 200
    connections.read("/some", 10)
    assert engine.connections == 1
    connections.close()
