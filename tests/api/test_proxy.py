"""HTTP and WebSockets to a port of a sandbox: bytes as they are, no token to the sandbox, nothing for a web page."""

import asyncio
import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect, unix_connect
from websockets.sync.server import ServerConnection, serve

from paddock import AsyncPaddock, Paddock, PaddockError
from tests.api.listeners import API, client, opened, token
from tests.daemon import wait_for
from tests.helpers_api import ApiStack

SANDBOX = f"{API}/namespaces/default/sandboxes/quickstart"
WEB, SOCKETS, RAW = 8000, 8001, 8002
PROXY = f"{SANDBOX}/proxy/{WEB}"
MIB = 1 << 20


class Program(http.server.BaseHTTPRequestHandler):
    """A program in the sandbox: echoes what it was asked; some paths answer as their name says."""

    protocol_version = "HTTP/1.1"
    hold: ClassVar[threading.Event]
    left: ClassVar[threading.Event]

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while count := int(self.rfile.readline(), 16):
                body += self.rfile.read(count)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(size)
        document = {"method": self.command, "path": self.path, "body": body.decode("latin-1"), "size": len(body)}
        data = json.dumps(
            {**document, "headers": [[name.lower(), value] for name, value in self.headers.items()]}
        ).encode()
        if self.path == "/redirect":
            self.send_response(302)
            for entry in ("/login?next=1", "nearby", f"http://localhost:{WEB}/x", "https://elsewhere.example/"):
                self.send_header("Location", entry)
            self.send_header("Set-Cookie", "a=1; Path=/app; Domain=example.org; HttpOnly")
            self.send_header("Set-Cookie", "b=2")
            for name in ("Strict-Transport-Security", "Clear-Site-Data", "Access-Control-Allow-Origin", "X-Own"):
                self.send_header(name, "1")
            data = b""
        elif self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(b"first")
                while not self.hold.wait(0.01):
                    self.wfile.write(b"more")
            self.left.set()
            self.close_connection = True
            return
        else:
            self.send_response(200 if self.path != "/teapot" else 418)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def socketed(connection: ServerConnection) -> None:
    """Say which headers came, then echo; `bye` closes with a code."""
    assert connection.request is not None
    connection.send(json.dumps([[name.lower(), value] for name, value in connection.request.headers.raw_items()]))
    for message in connection:
        if message == "bye":
            connection.close(4001, "as asked")
            return
        connection.send(b"x" * (5 * MIB) if message == "much" else message)


@pytest.fixture
def sandbox(api: ApiStack, quiet: None) -> Iterator[ApiStack]:
    """A running sandbox with programs at three ports; the last answers with `api.raw`."""
    api.apply()
    api.view.show(api.sandbox())
    Program.hold, Program.left = threading.Event(), threading.Event()
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Program)
    sockets = serve(socketed, "127.0.0.1", 0, subprotocols=["chat"], compression=None)  # type: ignore[list-item]
    api.ports.listen(WEB, web.server_port)
    api.ports.listen(SOCKETS, sockets.socket.getsockname()[1])
    threads = [threading.Thread(target=serve_forever) for serve_forever in (web.serve_forever, sockets.serve_forever)]
    for thread in threads:
        thread.start()
    try:
        yield api
    finally:
        Program.hold.set()
        web.shutdown()
        web.server_close()
        sockets.shutdown()
        for entry in threads:
            entry.join()


@contextlib.contextmanager
def answering(api: ApiStack, data: bytes) -> Iterator[None]:
    """Serve one connection of the port RAW: these bytes to whatever comes, and its end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        api.ports.listen(RAW, listening.getsockname()[1])

        def one() -> None:
            sock, _ = listening.accept()
            with sock, contextlib.suppress(OSError):
                sock.recv(65536)
                sock.sendall(data)

        thread = threading.Thread(target=one)
        thread.start()
        yield
        thread.join()


def headers(found: Any) -> dict[str, str]:
    return dict(found)


def freed(api: ApiStack) -> None:
    wait_for("all is freed", lambda: not api.services.forward.slots.used_count, 60)


def test_request_and_answer_pass_without_the_token(sandbox: ApiStack) -> None:
    secret = token(sandbox, "user", "default")
    sent = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": "c=1",
        "X-Own": "2",
        "X-Hop": "3",
        "Connection": "X-Hop",
        "X-Forwarded-For": "9.9.9.9",
        "Proxy-Authorization": "Basic xyz",
    }
    with (
        opened(sandbox, host="127.0.0.1") as observed,
        httpx.Client(base_url=observed.url, verify=False, timeout=60) as remote,
    ):
        remote.headers["Authorization"] = f"Bearer {secret}"
        answer = remote.post(f"{PROXY}/a%2Fb/%C3%A4;c?d=e&f=%20", content=b"x=1", headers=sent)
        assert answer.status_code == 200
        document = answer.json()
        given_headers = headers(document["headers"])
        assert (document["method"], document["path"], document["body"]) == ("POST", "/a%2Fb/%C3%A4;c?d=e&f=%20", "x=1")
        assert (given_headers["cookie"], given_headers["x-own"], given_headers["content-length"]) == ("c=1", "2", "3")
        assert (given_headers["host"], given_headers["x-forwarded-prefix"]) == (f"localhost:{WEB}", PROXY)
        assert secret not in answer.text
        assert not {"authorization", "proxy-authorization", "x-hop", "x-forwarded-for"} & set(given_headers)
        assert answer.headers["content-security-policy"] == "sandbox"
        assert answer.headers["via"] == "1.1 paddock"
        for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert remote.request(method, f"{PROXY}/x").json()["method"] == method
        head = remote.head(f"{PROXY}/x")
        assert (head.status_code, head.content, int(head.headers["content-length"]) > 0) == (200, b"", True)
        assert remote.get(f"{PROXY}/teapot").status_code == 418
        assert remote.get(PROXY).json()["path"] == "/"
    freed(sandbox)
    entries = [entry for entry in sandbox.store.audit.entries() if entry.verb == "proxy"]
    assert {(entry.name, entry.detail["port"]) for entry in entries} == {("quickstart", str(WEB))}


def test_redirects_and_cookies_keep_to_the_port(sandbox: ApiStack) -> None:
    with opened(sandbox), client(sandbox) as local:
        answer = local.get(f"{PROXY}/redirect")
    assert answer.headers.get_list("location") == [
        f"{PROXY}/login?next=1",
        "nearby",
        f"{PROXY}/x",
        "https://elsewhere.example/",
    ]
    assert answer.headers.get_list("set-cookie") == [f"a=1; HttpOnly; Path={PROXY}/app", f"b=2; Path={PROXY}/"]
    assert answer.headers["x-own"] == "1"
    for name in ("strict-transport-security", "clear-site-data", "access-control-allow-origin"):
        assert name not in answer.headers


def test_web_pages_are_refused_with_a_token_too(sandbox: ApiStack) -> None:
    secret = token(sandbox, "admin")
    document = {"Authorization": f"Bearer {secret}"}
    with (
        opened(sandbox, host="127.0.0.1") as observed,
        httpx.Client(base_url=observed.url, headers=document, verify=False, timeout=60) as remote,
    ):
        for page in ({"Origin": observed.url}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
            answer = remote.get(f"{PROXY}/", headers=page)
            assert (answer.status_code, answer.json()["reason"]) == (403, "Forbidden"), page
            with pytest.raises(InvalidStatus) as refusal:
                connect(
                    f"{observed.url.replace('http', 'ws')}{SANDBOX}/proxy/{SOCKETS}",
                    additional_headers={**document, **page},
                )
            assert refusal.value.response.status_code == 403
        assert remote.get(f"{PROXY}/", headers={"Authorization": ""}).status_code == 401
        for role, code in (("viewer", 403), ("user", 200)):
            requested = {"Authorization": f"Bearer {token(sandbox, role, 'default')}"}
            assert remote.get(f"{PROXY}/", headers=requested).status_code == code
        second = {"Authorization": f"Bearer {token(sandbox, 'admin', 'elsewhere')}"}
        assert remote.get(f"{PROXY}/", headers=second).status_code == 404


def test_large_bodies_stream_both_ways(sandbox: ApiStack) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * MIB

    with opened(sandbox), client(sandbox) as local:
        document = local.post(f"{PROXY}/", content=pieces(), timeout=60).json()
    assert (document["size"], headers(document["headers"])["transfer-encoding"]) == (20 * MIB, "chunked")
    freed(sandbox)


def test_disconnect_ends_the_request_in_the_sandbox(sandbox: ApiStack) -> None:
    with opened(sandbox), client(sandbox) as local, local.stream("GET", f"{PROXY}/endless") as answer:
        assert next(answer.iter_raw()).startswith(b"first")
        answer.close()
        assert Program.left.wait(60)
        freed(sandbox)


@pytest.mark.parametrize(
    "data", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 999 Odd\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999]
)
def test_what_is_not_http_is_a_bad_gateway(sandbox: ApiStack, data: bytes) -> None:
    with opened(sandbox), client(sandbox) as local, answering(sandbox, data):
        answer = local.get(f"{SANDBOX}/proxy/{RAW}/")
        assert (answer.status_code, answer.json()["reason"]) == (502, "BadGateway")
    freed(sandbox)


def test_broken_answers_are_broken_for_the_client(sandbox: ApiStack) -> None:
    half = answering(sandbox, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    with opened(sandbox), client(sandbox) as local, half, pytest.raises(httpx.RemoteProtocolError):
        local.get(f"{SANDBOX}/proxy/{RAW}/")
    freed(sandbox)


def test_an_answer_ends_wherever_its_program_closes(sandbox: ApiStack) -> None:
    content = (
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    )
    head = content.index(b"\r\n\r\n2") + 4
    with opened(sandbox), client(sandbox) as local:
        for count in range(len(content) + 1):
            with answering(sandbox, content[:count]):
                if head <= count < len(content):
                    with pytest.raises(httpx.RemoteProtocolError):
                        local.get(f"{SANDBOX}/proxy/{RAW}/")
                else:
                    answer = local.get(f"{SANDBOX}/proxy/{RAW}/")
                    assert answer.status_code == (200 if count == len(content) else 502), content[:count]
    freed(sandbox)


def test_endless_interim_answers_are_a_bad_gateway(sandbox: ApiStack) -> None:
    with opened(sandbox), client(sandbox) as local, answering(sandbox, b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000):
        answer = local.get(f"{SANDBOX}/proxy/{RAW}/")
        assert (answer.status_code, "interim" in answer.json()["message"]) == (502, True)
    freed(sandbox)


def test_refusals_name_what_is_wrong(sandbox: ApiStack) -> None:
    with opened(sandbox), client(sandbox) as local:
        for path, code, message in (
            (f"{SANDBOX}/proxy/81/", 409, "nothing listens on port 81"),
            (f"{SANDBOX}/proxy/0/", 400, "65535"),
            (f"{SANDBOX}/proxy/http/", 400, "port"),
            (f"{SANDBOX}/proxy%2F{WEB}/", 400, "encoded slash"),
            (f"{API}/namespaces/default/sandboxes/nobody/proxy/80/", 404, "not found"),
        ):
            answer = local.get(path)
            assert (answer.status_code, message in answer.json()["message"]) == (code, True), answer.text
    freed(sandbox)


def test_websocket_messages_pass_both_ways(sandbox: ApiStack) -> None:
    with opened(sandbox, host="127.0.0.1") as observed:
        secret = token(sandbox, "user", "default")
        document = {"Authorization": f"Bearer {secret}", "Cookie": "c=1"}
        url = f"{observed.url.replace('http', 'ws')}{SANDBOX}/proxy/{SOCKETS}/live?a=b"
        with connect(url, additional_headers=document, subprotocols=["chat"], max_size=None) as link:  # type: ignore[list-item]
            sent = headers(json.loads(link.recv(60)))
            assert link.subprotocol == "chat"
            assert (sent["cookie"], "authorization" in sent, sent["host"]) == ("c=1", False, f"localhost:{SOCKETS}")
            for message in ("text", b"\x00\xff", "", b"x" * (MIB - 9)):
                link.send(message)
                assert link.recv(60) == message
            link.send("bye")
            with pytest.raises(ConnectionClosed) as closed:
                link.recv(60)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as asked")
        with connect(url, additional_headers=document, subprotocols=["chat"], max_size=None) as link:  # type: ignore[list-item]
            link.recv(60)
            link.send("much")  # a message over the limit ends the connection
            with pytest.raises(ConnectionClosed) as closed:
                link.recv(60)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        freed(sandbox)


def test_websocket_refusal_of_the_program_passes(sandbox: ApiStack) -> None:
    with opened(sandbox):
        with pytest.raises(InvalidStatus) as refusal:
            unix_connect(str(sandbox.socket), f"ws://paddock{PROXY}/teapot")
        assert refusal.value.response.status_code == 418
        with answering(sandbox, b"not HTTP\r\n\r\n"), pytest.raises(InvalidStatus) as refused:
            unix_connect(str(sandbox.socket), f"ws://paddock{SANDBOX}/proxy/{RAW}/")
        assert refused.value.response.status_code == 502
        url = f"ws://paddock{SANDBOX}/proxy/{SOCKETS}/"
        with unix_connect(str(sandbox.socket), url, subprotocols=["chat"]) as link:  # type: ignore[list-item]
            link.recv(60)
            link.socket.shutdown(socket.SHUT_RDWR)  # as if the client were killed
            freed(sandbox)


def test_revoked_token_ends_what_is_open(sandbox: ApiStack) -> None:
    with (
        opened(sandbox, host="127.0.0.1") as observed,
        httpx.Client(base_url=observed.url, verify=False, timeout=60) as remote,
    ):
        document = {"Authorization": f"Bearer {token(sandbox, 'user', 'default', name='leaver')}"}
        with remote.stream("GET", f"{PROXY}/endless", headers=document) as answer:
            pieces = answer.iter_raw()
            assert next(pieces).startswith(b"first")
            sandbox.services.tokens.revoke("leaver")
            with contextlib.suppress(httpx.HTTPError):
                for _ in pieces:
                    pass
            assert Program.left.wait(60)
        freed(sandbox)


@pytest.mark.parametrize("tcp", [False, True])
def test_sdk_sends_its_token_to_the_daemon_alone(sandbox: ApiStack, tcp: bool) -> None:
    text = token(sandbox, "user", "default")
    with opened(sandbox, host="127.0.0.1") as listeners:
        server = listeners.url if tcp else f"unix://{sandbox.socket}"
        with Paddock(server, token=text) as paddock, paddock.sandbox("quickstart").proxy(WEB, timeout=60) as web:
            document = web.post("/a/b", params={"q": "1"}, content=b"body").json()
            assert (document["method"], document["path"], document["body"]) == ("POST", "/a/b?q=1", "body")
            assert text not in json.dumps(document["headers"])
            redirected = web.get("/redirect", follow_redirects=True)  # by the first of the program's four
            assert redirected.json()["path"].startswith("/login?next=1")
            assert web.get("/teapot").status_code == 418
            for outside in (f"{web.base_url.copy_with(path='/mcp')}", "http://127.0.0.1:1/", "/../../mcp"):
                with pytest.raises(PaddockError, match="a client of your own"):
                    web.get(outside)
            with paddock.sandbox("quickstart").proxy(1) as nothing:
                answer = nothing.get("/")
                assert (answer.status_code, answer.json()["kind"]) == (409, "Status")
    freed(sandbox)


def test_async_sdk_reaches_a_port(sandbox: ApiStack) -> None:
    async def ask() -> Any:
        async with (
            AsyncPaddock(f"unix://{sandbox.socket}") as paddock,
            await paddock.sandbox("quickstart").proxy(WEB, timeout=60) as web,
        ):
            return (await web.get("hello", params={"x": "y"})).json()

    with opened(sandbox):
        assert asyncio.run(ask())["path"] == "/hello?x=y"
    freed(sandbox)
