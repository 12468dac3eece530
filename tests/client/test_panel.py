"""The relay of `paddock panel`: only its own page, with its session, reaches the daemon as its user."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from controller.cli.relays.panel import CODE_SECONDS, PanelRelay
from paddock._client.connection import connect
from paddock._client.errors import ClientError
from tests.api.listeners import opened
from tests.conftest import HandClock
from tests.helpers_api import QUICKSTART, ApiStack

API = "/apis/paddock/v1alpha1"
SANDBOXES = f"{API}/namespaces/default/sandboxes"
PREVIEW = {"namespace": "default", "name": "quickstart", "port": 80}


@pytest.fixture
def relay(api: ApiStack, clock: HandClock) -> Iterator[PanelRelay]:
    with (
        opened(api),
        closing(connect(f"unix://{api.socket}")) as connection,
        PanelRelay(connection, clock=clock.now) as made,
    ):
        yield made


@pytest.fixture
def page(relay: PanelRelay) -> Iterator[httpx.Client]:
    """A client that sends as the panel's page does, without a session."""
    headers = {"Origin": relay.origin, "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=relay.origin, headers=headers, verify=False, timeout=60) as made:
        yield made


def code(relay: PanelRelay) -> str:
    return relay.url().partition("#code=")[2]


def session(relay: PanelRelay, page: httpx.Client) -> dict[str, str]:
    token = page.post("/panel/session", json={"code": code(relay)}).json()["token"]
    return {"Authorization": f"Bearer {token}"}


def raw(relay: PanelRelay, head: str) -> bytes:
    with socket.create_connection(("127.0.0.1", relay.port), 60) as made:
        made.sendall(head.replace("\n", "\r\n").encode())
        return b"".join(iter(lambda: made.recv(65536), b""))


def test_a_code_gives_the_users_identity_once(relay: PanelRelay, page: httpx.Client) -> None:
    once = code(relay)
    token = page.post("/panel/session", json={"code": once}).json()["token"]
    held = {"Authorization": f"Bearer {token}"}
    assert page.get(f"{API}/auth/whoami", headers=held).json()["grants"][0]["role"] == "admin"
    assert page.get("/panel/session", headers=held).json()["local"] is True
    again = page.post("/panel/session", json={"code": once})
    assert (again.status_code, "paddock panel" in again.json()["message"]) == (401, True)
    made = page.post(SANDBOXES, headers={**held, "Content-Type": "application/yaml"}, content=QUICKSTART)
    assert made.status_code == 201


def test_a_code_ends_after_a_minute(relay: PanelRelay, page: httpx.Client, clock: HandClock) -> None:
    late = code(relay)
    clock.advance(CODE_SECONDS + 1)
    assert page.post("/panel/session", json={"code": late}).status_code == 401


def test_without_a_session_only_files_are_served(relay: PanelRelay, page: httpx.Client) -> None:
    assert page.get("/panel/").status_code == 200
    assert page.get("/panel/main.js").status_code == 200
    assert page.post("/panel/main.js").status_code == 405
    for token in ("", "guess", "Ω"):
        headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
        for path in (SANDBOXES, "/version", "/openapi.json", "/panel/session"):
            assert page.get(path, headers=headers).status_code == 401
        assert page.post("/panel/previews", json=PREVIEW, headers=headers).status_code == 401


def test_files_lend_nobody_the_users_identity(relay: PanelRelay) -> None:
    """Any user of this host can connect to the relay, and the daemon sees each connection as its owner's."""
    host = f"Host: 127.0.0.1:{relay.port}\n"
    second = f"GET {API}/auth/whoami HTTP/1.1\n{host}\n"
    for more in ("", f"Content-Length: {len(second)}\n", "Upgrade: websocket\nConnection: Upgrade\n"):
        answer = raw(relay, f"GET /panel/main.js HTTP/1.1\n{host}{more}\n{second}")
        assert answer.startswith(b"HTTP/1.1 200")
        assert (answer.count(b"HTTP/1.1 "), b"WhoAmI" in answer) == (1, False)
    for path in ("/panel/../apis/paddock/v1alpha1/sandboxes", "/panel/%2e%2e/version", "/panel//version"):
        assert raw(relay, f"GET {path} HTTP/1.1\n{host}\n").startswith(b"HTTP/1.1 404")


def test_other_sites_get_nothing_even_with_a_session(relay: PanelRelay, page: httpx.Client) -> None:
    held = session(relay, page)
    for foreign in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": f"localhost:{relay.port}"},
    ):
        assert page.get(SANDBOXES, headers={**held, **foreign}).status_code == 403, foreign
        assert page.post("/panel/session", json={"code": code(relay)}, headers=foreign).status_code == 403
        if "Host" in foreign:
            assert page.get("/panel/", headers=foreign).status_code == 403


def test_no_page_of_a_sandbox_at_the_panels_origin(relay: PanelRelay, page: httpx.Client) -> None:
    held = session(relay, page)
    for path in ("proxy/80", "proxy/80/", "proxy/80/a?b", "%70roxy/80/", "proxy%2F80/", "proxy"):
        answer = page.get(f"{SANDBOXES}/quickstart/{path}", headers=held)
        assert (answer.status_code, "preview" in answer.json()["message"]) == (403, True), path
    assert page.get(f"{SANDBOXES}/proxy/why", headers=held).status_code == 404  # the name of a sandbox


def test_daemon_sees_a_local_client(relay: PanelRelay, page: httpx.Client) -> None:
    held = session(relay, page)
    answer = page.get(f"{API}/auth/whoami", headers={**held, "Cookie": "a=b", "Referer": relay.origin})
    assert answer.json()["source"].startswith("unix")
    assert answer.headers["connection"] == "close"


def test_websocket_carries_the_session_as_subprotocol(relay: PanelRelay, page: httpx.Client) -> None:
    token = session(relay, page)["Authorization"].removeprefix("Bearer ")
    page.post(SANDBOXES, headers={**session(relay, page), "Content-Type": "application/yaml"}, content=QUICKSTART)
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    head = (
        f"GET {SANDBOXES}/quickstart/portforward?port=0 HTTP/1.1\nHost: 127.0.0.1:{relay.port}\n"
        "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n"
        f"Origin: {relay.origin}\nSec-WebSocket-Protocol: portforward.paddock, %s\n\n"
    )
    refused = raw(relay, head % "base64url.bearer.authorization.k8s.io.AAAA")
    assert refused.startswith(b"HTTP/1.1 401")
    reached = raw(relay, head % f"base64url.bearer.authorization.k8s.io.{encoded}")
    assert not reached.startswith(b"HTTP/1.1 401"), reached  # the daemon answers: it knows the caller
    assert token.encode() not in reached
    assert encoded.encode() not in reached


def test_a_preview_is_served_under_its_own_name_alone(relay: PanelRelay, page: httpx.Client, api: ApiStack) -> None:
    """A browser sends its cookies for 127.0.0.1 to every port there."""
    held = session(relay, page)
    page.post(SANDBOXES, headers={**held, "Content-Type": "application/yaml"}, content=QUICKSTART)
    api.view.show(api.sandbox())
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.settimeout(60)
        api.ports.listen(80, inside.getsockname()[1])
        url = urlsplit(page.post("/panel/previews", json=PREVIEW, headers=held).json()["url"])
        assert str(url.hostname).endswith(".localhost")
        for host in (f"127.0.0.1:{url.port}", f"localhost:{url.port}", f"a.localhost:{url.port}", str(url.hostname)):
            answer = httpx.get(f"http://127.0.0.1:{url.port}/", headers={"Host": host, "Cookie": "a=b"}, timeout=60)
            assert answer.status_code == 421, host
        asked = f"GET / HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", url.port or 0), 60) as browser:
            browser.sendall(asked)
            program, _ = inside.accept()  # the first connection that reached the sandbox
            with program:
                program.settimeout(60)
                assert program.recv(65536) == asked
                program.sendall(b"hello")
                assert browser.recv(65536) == b"hello"


def test_a_preview_of_a_dead_port_is_a_page(relay: PanelRelay, page: httpx.Client, api: ApiStack) -> None:
    headers = session(relay, page)
    page.post(SANDBOXES, headers={**headers, "Content-Type": "application/yaml"}, content=QUICKSTART)
    api.view.show(api.sandbox())
    url = urlsplit(page.post("/panel/previews", json=PREVIEW, headers=headers).json()["url"])
    for accept, kind in (("text/html,*/*", "text/html"), ("application/json", "text/plain")):
        headers = {"Host": url.netloc, "Accept": accept}
        answer = httpx.get(f"http://127.0.0.1:{url.port}/", headers=headers, timeout=60)
        assert (answer.status_code, answer.headers["Content-Type"].split(";")[0]) == (502, kind)
        assert "Nothing answers at port 80" in answer.text


def test_two_requests_at_once_open_a_preview_once(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        opened(api),
        closing(connect(f"unix://{api.socket}")) as connection,
        PanelRelay(connection) as relay,
        httpx.Client(base_url=relay.origin, verify=False, timeout=60) as page,
    ):
        held = session(relay, page)
        page.post(SANDBOXES, headers={**held, "Content-Type": "application/yaml"}, content=QUICKSTART)
        both, get, before = threading.Barrier(2), connection.get, set(threading.enumerate())

        def together(path: str) -> Any:
            both.wait(60)
            return get(path)

        monkeypatch.setattr(connection, "get", together)
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(page.post, "/panel/previews", json=PREVIEW, headers=held) for _ in range(2)]
            urls = {each.result().json()["url"] for each in asked}
        listeners = [each for each in set(threading.enumerate()) - before if each.name == "port-forward"]
        assert (len(urls), len(listeners)) == (1, 1)


def test_malformed_requests_are_refused(relay: PanelRelay) -> None:
    host = f"Host: 127.0.0.1:{relay.port}\n"
    for head in (
        f"GET /panel/ HTTP/1.0\n{host}\n",
        f"GET http://127.0.0.1:{relay.port}/panel/ HTTP/1.1\n{host}\n",
        f"GET /panel/ HTTP/1.1\n{host}Host: evil.example\n\n",
        f"GET /panel/ HTTP/1.1\n{host} folded: x\n\n",
        "GET /panel/ HTTP/1.1\nno colon\n\n",
        "GARBAGE\n\n",
    ):
        assert raw(relay, head).startswith(b"HTTP/1.1 400"), head


def test_unreachable_daemon_is_said_in_words(api: ApiStack) -> None:
    with opened(api):
        connection = connect(f"unix://{api.socket}")
    with (
        closing(connection),
        PanelRelay(connection) as relay,
        httpx.Client(base_url=relay.origin, verify=False, timeout=60) as page,
    ):
        held = session(relay, page)
        answer = page.get(SANDBOXES, headers=held)
        assert (answer.status_code, "no Paddock daemon" in answer.json()["message"]) == (502, True)


def test_ending_the_command_ends_everything(api: ApiStack, caplog: pytest.LogCaptureFixture) -> None:
    with opened(api), closing(connect(f"unix://{api.socket}")) as connection:
        relay = PanelRelay(connection)
        with httpx.Client(base_url=relay.origin, verify=False, timeout=60) as page:
            held = session(relay, page)
            with page.stream("GET", f"{SANDBOXES}?watch=1", headers=held) as watch:
                lines = watch.iter_bytes()
                relay.close()
                with pytest.raises(httpx.RemoteProtocolError):
                    list(lines)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", relay.port), 60)
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


def test_a_taken_port_is_said(api: ApiStack) -> None:
    with opened(api), closing(connect(f"unix://{api.socket}")) as connection, PanelRelay(connection) as relay:
        with pytest.raises(ClientError, match="--port"):
            PanelRelay(connection, port=relay.port)
        assert json.loads(httpx.post(f"{relay.origin}/panel/session", json={}, timeout=60).text)["code"] == 401
