"""Previews over real sockets: what a browser gets through the listener, and what hostile clients and programs get."""

import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from controller.api.preview.address import PreviewAddress
from controller.api.preview.app import PreviewApp
from controller.api.preview.protocol import PreviewProtocol, note_server_name
from controller.api.preview.proxies import Proxies
from controller.api.preview.traffic import Traffic
from controller.api.server import request_deadline
from controller.api.server.first_request import FirstRequestServer
from controller.kinds.access.access import Caller, Grant
from controller.kinds.runtime.preview import PARAMETER, PreviewTarget, label_of
from controller.service.access import access
from controller.service.errors import Forbidden
from controller.service.front.previews import Previews
from tests.api.listeners import certificate
from tests.daemon import wait_for
from tests.helpers_api import ApiStack

WEB, SOCKETS, RAW, DEAD = 3000, 3001, 3002, 3999
MIB = 1 << 20


class Program(http.server.BaseHTTPRequestHandler):
    """A program that says which headers reached it, at a path of what it answers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        headers = [[name.lower(), value] for name, value in self.headers.items()]
        data = json.dumps({"path": self.path, "headers": headers}).encode()
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for number in range(3):
                self.wfile.write(f"data: {number}\n\n".encode())
                self.wfile.flush()
            self.close_connection = True
            return
        self.send_response(302 if self.path == "/redirect" else 200)
        if self.path == "/redirect":
            self.send_header("Location", f"http://localhost:{WEB}/next")
        self.send_header("Set-Cookie", "session=1; Path=/")
        self.send_header("Content-Security-Policy", "default-src 'self'")
        self.send_header("Access-Control-Allow-Origin", "https://friend.test")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        size = 0
        while (line := self.rfile.readline().strip()) != b"0":
            size += len(self.rfile.read(int(line, 16)))
            self.rfile.readline()
        self.rfile.readline()
        data = str(size).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def _echo(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(message)


@dataclass
class Preview:
    """A listener of previews, and the links that it takes."""

    api: ApiStack
    previews: Previews
    server: FirstRequestServer
    users: set[int]
    """Uids of the users of this host who have grants."""

    def link(self, port: int, **options: Any) -> str:
        return self.previews.create(PreviewTarget("default", "quickstart", port), **options).token

    def host(self, port: int) -> str:
        uid = self.api.sandbox().uid
        return f"{label_of(PreviewTarget('default', 'quickstart', port), uid)}.localhost:{self.server.port}"

    def get(self, port: int, path: str = "/", **headers: str) -> httpx.Response:
        address = f"http://127.0.0.1:{self.server.port}{path}"
        return httpx.get(address, headers={"Host": self.host(port), **headers}, timeout=60)

    def exchange(self, port: int, token: str, **headers: str) -> httpx.Response:
        return self.get(port, "/?" + urlencode({PARAMETER: token}), **headers)

    def cookie(self, port: int, **headers: str) -> str:
        answer = self.exchange(port, self.link(port), **headers)
        assert answer.status_code == 303, answer.text
        return answer.headers["set-cookie"].partition(";")[0]

    def raw(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes until the listener ends the connection."""
        with socket.create_connection(("127.0.0.1", self.server.port), 60) as client:
            client.sendall(data)
            return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.fixture
def preview(api: ApiStack, quiet: None) -> Iterator[Preview]:
    api.apply()
    api.view.show(api.sandbox())
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Program)
    sockets = serve(_echo, "127.0.0.1", 0, subprotocols=["vite-hmr"], max_size=None)  # type: ignore[list-item]
    api.ports.listen(WEB, web.server_port)
    api.ports.listen(SOCKETS, sockets.socket.getsockname()[1])
    threads = [threading.Thread(target=server.serve_forever) for server in (web, sockets)]
    for thread in threads:
        thread.start()
    services, users = api.services, {1000}

    def user_of_host(uid: int) -> Caller:
        if uid not in users:
            raise Forbidden("no grants")
        return Caller(f"uid {uid}", grants=(Grant(role="user"),), uid=uid)

    previews = Previews(
        objects=services.objects,
        registry=services.registry,
        tokens=api.store.tokens,
        recorder=services.recorder,
        clock=api.clock,
        folder=api.folder / "previews",
        grants_of=user_of_host,
        meter=api.meter,
    )

    def application() -> PreviewApp:
        address = PreviewAddress("http", f"localhost:{server.port}")
        traffic = Traffic(api.meter)
        return PreviewApp(previews, services.forward, services.sandbox_streams, address, Proxies(), traffic)

    server = FirstRequestServer(
        application, ("127.0.0.1", 0), "preview_address", protocol=PreviewProtocol, sni_callback=note_server_name
    )
    server.start()
    try:
        yield Preview(api, previews, server, users)
    finally:
        server.stop()
        web.shutdown()
        web.server_close()
        sockets.shutdown()
        for thread in threads:
            thread.join()


def test_a_page_keeps_its_cookies_and_policies(preview: Preview) -> None:
    cookie = preview.cookie(WEB)
    answer = preview.get(WEB, "/page?x=1", Cookie=f"a=1; {cookie}")
    headers = dict(answer.json()["headers"])
    assert (answer.json()["path"], headers["host"], headers["cookie"]) == ("/page?x=1", f"localhost:{WEB}", "a=1")
    assert answer.headers["set-cookie"] == "session=1; Path=/"
    assert answer.headers["content-security-policy"] == "default-src 'self'"
    assert answer.headers["access-control-allow-origin"] == "https://friend.test"
    redirect = preview.get(WEB, "/redirect", Cookie=cookie)
    assert redirect.headers["location"] == f"http://{preview.host(WEB)}/next"
    assert preview.get(WEB, "/events", Cookie=cookie).text == "data: 0\n\ndata: 1\n\ndata: 2\n\n"


def test_a_websocket_is_relayed_as_it_is(preview: Preview) -> None:
    cookie, origin = preview.cookie(SOCKETS), f"http://{preview.host(SOCKETS)}"
    options: Any = {"additional_headers": {"Cookie": cookie}, "max_size": None, "proxy": None}
    url = f"ws://{preview.host(SOCKETS)}/"
    options["subprotocols"] = ["vite-hmr"]
    for _ in range(20):  # however quick the program is
        with (
            socket.create_connection(("127.0.0.1", preview.server.port)) as sock,
            connect(url, sock=sock, origin=origin, **options) as client,
        ):
            client.send("short")
            assert client.recv() == "short"
    sock = socket.create_connection(("127.0.0.1", preview.server.port))
    with sock, connect(url, sock=sock, origin=origin, **options) as client:
        assert client.subprotocol == "vite-hmr"
        assert client.protocol.extensions, "compression is between the two"
        large = "x" * (6 * MIB)  # more than the API's own WebSockets take
        client.send(large)
        assert client.recv() == large
        preview.previews.void("default", "quickstart")
        with pytest.raises(Exception, match="no close frame"):
            client.recv(timeout=30)
    wait_for("its end", lambda: preview.api.meter.gauges["paddock_preview_open_requests",] == 0)


def test_a_websocket_of_another_page_is_refused(preview: Preview) -> None:
    cookie = preview.cookie(SOCKETS)
    for origin in ("http://3001--other--default.localhost", "null", f"https://{preview.host(SOCKETS)}"):
        with socket.create_connection(("127.0.0.1", preview.server.port)) as sock:
            options: Any = {"additional_headers": {"Cookie": cookie}, "proxy": None}
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://{preview.host(SOCKETS)}/", sock=sock, origin=origin, **options)
            assert refused.value.response.status_code == 403


def test_a_frames_websocket_is_its_own_pages(preview: Preview) -> None:
    """Browsers say by Sec-Fetch-Site where a request comes from, but of a WebSocket by its Origin alone."""
    framed = {"Sec-Fetch-Dest": "iframe", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site"}
    cookie = preview.cookie(SOCKETS, **framed)
    assert cookie.startswith("__Host-paddock-preview-frame=")
    options: Any = {"additional_headers": {"Cookie": cookie}, "proxy": None, "subprotocols": ["vite-hmr"]}
    codes = {}
    for origin in (f"http://{preview.host(SOCKETS)}", "http://3001--other--default.localhost", "null", None):
        with socket.create_connection(("127.0.0.1", preview.server.port)) as sock:
            try:
                with connect(f"ws://{preview.host(SOCKETS)}/", sock=sock, origin=origin, **options) as client:
                    client.send("short")
                    codes[origin] = 101 if client.recv() == "short" else 0
            except InvalidStatus as refused:
                codes[origin] = refused.response.status_code
    assert list(codes.values()) == [101, 403, 403, 403]


def test_a_frame_has_a_cookie_of_its_own(preview: Preview) -> None:
    framed = {"Sec-Fetch-Dest": "iframe", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site"}
    answer = preview.exchange(WEB, preview.link(WEB), **framed)
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert cookie.startswith("__Host-paddock-preview-frame=")
    assert "Secure; HttpOnly; SameSite=None; Partitioned" in answer.headers["set-cookie"]
    assert preview.get(WEB, Cookie=cookie, **framed).status_code == 200
    assert preview.get(WEB, Cookie=cookie, **{"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert preview.get(WEB, Cookie=cookie).status_code == 403  # a browser that may know no Partitioned cookies
    plain = preview.cookie(WEB)
    assert preview.get(WEB, Cookie=f"{plain}; {cookie}").status_code == 200
    assert preview.get(WEB, Cookie=f"{plain}; {cookie}", **framed).status_code == 200
    for site in ("same-site", "cross-site"):  # a sibling's page must not lay ours under its own
        assert preview.get(WEB, Cookie=plain, **{**framed, "Sec-Fetch-Site": site}).status_code == 403
    renamed = cookie.replace("-frame=", "=")
    assert preview.get(WEB, Cookie=renamed).status_code == 401


def test_a_link_dies_with_its_makers_group(preview: Preview) -> None:
    maker = Caller("uid 1000", grants=(Grant(role="user"),), uid=1000)
    with access.acting(maker):
        cookie = preview.cookie(WEB)
    assert preview.get(WEB, Cookie=cookie).status_code == 200
    preview.users.clear()
    preview.api.clock.advance(3)
    answer = preview.get(WEB, Cookie=cookie)
    assert (answer.status_code, "may not use the sandbox any more" in answer.text) == (401, True)


def test_a_long_body_is_streamed(preview: Preview) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(64):
            yield b"x" * MIB

    address = f"http://127.0.0.1:{preview.server.port}/"
    headers = {"Host": preview.host(WEB), "Cookie": preview.cookie(WEB)}
    assert httpx.post(address, headers=headers, content=pieces(), timeout=60).text == str(64 * MIB)


def test_smuggled_requests_reach_no_program(preview: Preview) -> None:
    cookie = preview.cookie(WEB)
    smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for head in (
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 30\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "X: a\nTransfer-Encoding: chunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
    ):
        start = f"POST / HTTP/1.1\r\nHost: {preview.host(WEB)}\r\nCookie: {cookie}\r\n{head}\r\n"
        answer = preview.raw((start + smuggled).encode("latin-1"))
        assert b"/smuggled" not in answer, head
        assert answer.startswith(b"HTTP/1.1 4"), head


def test_other_hosts_are_misdirected(preview: Preview) -> None:
    cookie, port = preview.cookie(WEB), preview.server.port
    label = preview.host(WEB).partition(".")[0]
    for host in (
        "localhost",
        f"{label}.evil.test",
        f"{label}.localhost.evil.test",
        f"evil.test#.{label}.localhost",
        f"{label}.localhost@evil.test",
        f"{label.replace('3000', '8500')}.localhost",
        f"{label.replace('3000', '8090')}.localhost",
        "3000--quickstart--default.localhost",
        "",
    ):
        start = f"GET /apis/paddock/v1alpha1/namespaces HTTP/1.1\r\nHost: {host}:{port}\r\n"
        answer = preview.raw((start + f"Cookie: {cookie}\r\nConnection: close\r\n\r\n").encode())
        assert answer.startswith((b"HTTP/1.1 421", b"HTTP/1.1 400")), host


def test_the_request_line_names_no_other_host(preview: Preview) -> None:
    cookie = preview.cookie(WEB)
    for target in (f"http://{preview.host(SOCKETS)}/", "//evil.test/", "*", "evil.test:80"):
        request = f"GET {target} HTTP/1.1\r\nHost: {preview.host(WEB)}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        answer = preview.raw(request.encode())
        assert b'"host", "localhost:3000"' in answer or answer.startswith(b"HTTP/1.1 4"), target
    twice = f"GET / HTTP/1.1\r\nHost: {preview.host(WEB)}\r\nHost: {preview.host(SOCKETS)}\r\n\r\n"
    assert preview.raw(twice.encode()).startswith(b"HTTP/1.1 4")


_NO_REQUESTS = {
    "none": b"",
    "a letter": b"G",
    "half a head": b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
    "a long line": b"GET /" + b"x" * 70_000,
    "many headers": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 12_000 + b"\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "binary": b"\0\xff\r\n\r\n",
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


def test_bytes_that_are_no_request_end(preview: Preview, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_deadline, "HEAD_SECONDS", 1.5)
    clients = {name: socket.create_connection(("127.0.0.1", preview.server.port), 60) for name in _NO_REQUESTS}
    for name, client in clients.items():
        with suppress(ConnectionError):  # it was closed before all was sent
            client.sendall(_NO_REQUESTS[name])
    for name, client in clients.items():
        answer = b""
        with client, suppress(ConnectionError):
            answer = b"".join(iter(partial(client.recv, 1 << 16), b""))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), (name, answer[:100])
    assert preview.get(WEB, Cookie=preview.cookie(WEB)).status_code == 200


def test_tls_for_another_host_name_is_misdirected(preview: Preview, tmp_path: Path) -> None:
    """A browser reuses a connection for all names of a wildcard; a page must not get another one's cookies by that."""
    cert, key = certificate(tmp_path)

    def application() -> PreviewApp:
        services, address = preview.api.services, PreviewAddress("https", f"localhost:{server.port}")
        return PreviewApp(preview.previews, services.forward, services.sandbox_streams, address)

    options: Any = {"cert": cert, "key": key, "protocol": PreviewProtocol, "sni_callback": note_server_name}
    server = FirstRequestServer(application, ("127.0.0.1", 0), "preview_address", **options)
    server.start()
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    name, other = (preview.host(port).partition(":")[0] for port in (WEB, SOCKETS))
    headers = {"Host": f"{name}:{server.port}", "X-Paddock-Preview-Token": preview.link(WEB)}
    codes = {}
    try:
        for asked_name in (name, name.upper(), other, "localhost", "evil.test", None):
            with (
                socket.create_connection(("127.0.0.1", server.port), 60) as plain,
                trusting.wrap_socket(plain, server_hostname=asked_name) as client,
            ):
                head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
                client.sendall(f"GET / HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
                codes[asked_name] = int(client.recv(4096).split()[1])
    finally:
        server.stop()
    assert codes == {name: 200, name.upper(): 200, other: 421, "localhost": 421, "evil.test": 421, None: 200}


def test_a_programs_second_answer_is_dropped(preview: Preview) -> None:
    for more in (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsecond", b"x" * 5000):
        answer = _answer_of(preview, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst" + more)
        assert (answer.count(b"HTTP/1.1 "), answer[-5:]) == (1, b"first")


def test_a_switch_that_nobody_asked_for_fails(preview: Preview) -> None:
    upgraded = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nraw"
    answer = _answer_of(preview, upgraded)
    assert answer.startswith(b"HTTP/1.1 502 "), answer


def _answer_of(preview: Preview, data: bytes) -> bytes:
    """Return what a client gets of a program that sends these bytes."""
    cookie = preview.cookie(RAW)
    request = f"GET / HTTP/1.1\r\nHost: {preview.host(RAW)}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as program:
        preview.api.ports.listen(RAW, program.getsockname()[1])

        def answer() -> None:
            with program.accept()[0] as client:
                client.recv(1 << 16)
                client.sendall(data)

        answering = threading.Thread(target=answer)
        answering.start()
        received = preview.raw(request.encode())
        answering.join()
    return received


def test_requests_and_bytes_are_counted(preview: Preview) -> None:
    preview.get(WEB, Cookie=preview.cookie(WEB))
    preview.get(WEB)
    preview.get(DEAD, Cookie=preview.cookie(DEAD))
    counted = preview.api.meter.counted
    outcomes = [labels["outcome"] for name, labels in counted if name == "paddock_preview_requests_total"]
    assert sorted(outcomes) == ["passed", "passed", "passed", "refused", "unavailable"]
    assert ("paddock_preview_bytes_total", {"direction": "out"}) in counted
    assert ("paddock_preview_links_total", {}) in counted
