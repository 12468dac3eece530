"""Clients that mean no good: half requests, slow readers, many connections, too much."""

import contextlib
import json
import socket

import pytest

from tests.agent.conftest import Running, Start, finished

HEAD = b"POST /mcp/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def answer_to(agent: Running, data: bytes) -> bytes:
    with agent.socket() as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        got = b""
        while piece := client.recv(65536):
            got += piece
    return got


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\nhost: x\r\n\r\n", 505),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nbad header: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n folded: x\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000, 431),
        (HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", 400),
        (HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}", 400),
        (HEAD + b"content-length: +2\r\n\r\n{}", 400),
        (HEAD + b"content-length: 5000000\r\n\r\n", 413),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n500000\r\n", 413),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n-1\r\n", 400),
        (HEAD + b"transfer-encoding: gzip\r\n\r\n", 501),
    ],
)
def test_malformed_requests_are_refused(agent: Running, data: bytes, status: int) -> None:
    assert answer_to(agent, data).split(b" ", 2)[1] == str(status).encode()
    assert agent.tool("exec", command="true")["success"]


def test_a_request_of_five_megabytes_is_too_large(agent: Running) -> None:
    status, answer = agent.request("POST", "/mcp/execute", b" " * 5_000_000)
    assert status == 413
    assert "4 MiB" in answer["error"]


def test_a_request_just_within_the_bound_is_taken(agent: Running) -> None:
    content = "x" * (4 * 1024 * 1024 - 200)
    assert agent.tool("file.write", path="f", content=content)["success"]
    assert (agent.root / "f").stat().st_size == len(content)


def test_other_paths_methods_and_types_are_refused(agent: Running) -> None:
    assert agent.request("GET", "/nothing")[0] == 404
    assert agent.request("PUT", "/mcp", {})[0] == 405
    assert agent.headers["allow"] == "POST, GET, DELETE"
    assert agent.request("POST", "/mcp/execute", {}, content_type="text/plain")[0] == 415
    assert agent.request("GET", "/mcp")[0] == 405


@pytest.mark.parametrize("header", [{"origin": "https://evil.example"}, {"host": "evil.example"}, {"origin": "null"}])
def test_pages_of_other_hosts_are_refused(agent: Running, header: dict[str, str]) -> None:
    assert agent.request("GET", "/healthz", **header)[0] == 403
    assert agent.request("GET", "/healthz", origin="http://localhost:3000")[0] == 200


def test_pipelined_and_chunked_requests_are_answered_in_order(agent: Running) -> None:
    def body(word: str) -> bytes:
        return json.dumps({"tool": "exec", "parameters": {"command": ["echo", word]}}).encode()

    chunked = b"transfer-encoding: chunked\r\n\r\n%x;note=1\r\n%s\r\n0\r\n\r\n"
    plain = b"content-length: %d\r\n\r\n%s"
    first = HEAD + plain % (len(body("one")), body("one"))
    second = HEAD + chunked % (len(body("two")), body("two"))
    third = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with agent.socket() as client:
        client.sendall(first + second + third)
        got = b""
        while piece := client.recv(65536):
            got += piece
    assert got.count(b"HTTP/1.1 200 OK") == 3
    assert got.index(b'"one\\n"') < got.index(b'"two\\n"') < got.index(b'"version"')


def test_a_client_that_asks_first_may_go_on(agent: Running) -> None:
    with agent.socket() as client:
        client.sendall(HEAD + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"{}")
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_thousand_connections_keep_nobody_out(agent: Running) -> None:
    crowd = [agent.socket() for _ in range(1000)]
    for connection in crowd[::2]:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.send(b"POST /mcp HTTP/1.1\r\nhost: loc")
    fresh = agent.connect()
    fresh.request("GET", "/healthz")
    assert fresh.getresponse().status == 200
    fresh.close()
    for entry in crowd:
        entry.close()
    assert agent.tool("exec", command="true")["success"]


def test_busy_connections_are_not_pushed_out(start: Start) -> None:
    agent = start(max_connections=2)
    connections = [agent.connect() for _ in range(2)]
    body = json.dumps({"tool": "exec", "parameters": {"command": "touch $$.up; until test -e go; do sleep 0.02; done"}})
    for connection in connections:
        connection.request("POST", "/mcp/execute", body, {"content-type": "application/json"})
    finished(lambda: len(list(agent.root.glob("*.up"))) == 2)
    assert agent.request("GET", "/healthz")[0] == 503
    (agent.root / "go").touch()
    assert [json.loads(http_connection.getresponse().read())["success"] for http_connection in connections] == [
        True,
        True,
    ]
    for entry in connections:
        entry.close()


def test_a_reader_that_does_not_read_holds_nobody_up(agent: Running) -> None:
    (agent.root / "large").write_text("x" * 262_144)
    body = json.dumps({"tool": "file.read", "parameters": {"path": "large"}}).encode()
    request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    with agent.socket() as slow:
        slow.sendall(request * 20)
        for _ in range(20):
            assert agent.tool("file.stat", path="large")["success"]
        got = 0
        while got < 20 * 524_288:
            piece = slow.recv(1 << 20)
            assert piece
            got += len(piece)


def memory(agent: Running) -> int:
    with open(f"/proc/{agent.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def test_memory_stays_bounded_under_half_requests(agent: Running) -> None:
    """Sixty clients that each announce 4 MB and send nearly all of it."""
    crowd = []
    for _ in range(60):
        client = agent.socket()
        client.settimeout(5)
        crowd.append(client)
        try:
            client.sendall(HEAD + b"content-length: 4000000\r\n\r\n" + b"x" * 2_000_000)
        except OSError:
            continue
    assert memory(agent) < 64 * 1024
    for connection in crowd:
        connection.close()
    assert agent.tool("exec", command="true")["success"]
