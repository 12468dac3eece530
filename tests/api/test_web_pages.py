"""Requests that a web page may have sent: never the local user's; and the token of a page's WebSocket."""

import base64
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import unix_connect
from websockets.typing import Subprotocol

from tests.api.listeners import API, client, opened, token
from tests.helpers_api import QUICKSTART, ApiStack

SANDBOXES = f"{API}/namespaces/default/sandboxes"
EXEC = f"{SANDBOXES}/quickstart/exec?command=cat"
SPOKEN = "v5.channel.k8s.io"
BEARER = "base64url.bearer.authorization.k8s.io."


@contextmanager
def listeners(api: ApiStack) -> Iterator[dict[str, str]]:
    """Both listeners; gives their addresses."""
    with opened(api, host="127.0.0.1") as observed:
        yield {"unix": str(api.socket), "tcp": urlsplit(observed.url).netloc}


def raw(address: str, sent: bytes) -> bytes:
    """Everything that comes back for these bytes, until the listener closes the connection."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET if host else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM) as created:
        created.settimeout(60)
        created.connect((host, int(port)) if host else address)
        created.sendall(sent)
        return b"".join(iter(lambda: created.recv(65536), b""))


def request(method: str, path: str, body: str = "", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: paddock", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def code(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


@pytest.mark.parametrize("header", [{"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}])
@pytest.mark.parametrize("listener", ["unix", "tcp"])
def test_a_pages_request_needs_a_token(api: ApiStack, listener: str, header: dict[str, str]) -> None:
    with listeners(api) as addresses:
        for type_ in ("text/plain", "application/json"):
            answer = raw(addresses[listener], request("POST", SANDBOXES, QUICKSTART, Content_Type=type_, **header))
            assert code(answer) == 401, answer
        read = raw(addresses[listener], request("GET", SANDBOXES, **header))
        assert (code(read), b"token" in read) == (401, True)
        assert not api.store.list("Sandbox")[0]
        document = {"Authorization": f"Bearer {token(api, 'user')}", "Content_Type": "application/yaml"}
        assert code(raw(addresses[listener], request("POST", SANDBOXES, QUICKSTART, **document, **header))) == 201


def test_the_local_user_needs_none_without_a_page(api: ApiStack) -> None:
    with listeners(api) as addresses:
        assert code(raw(addresses["unix"], request("GET", SANDBOXES))) == 200
        assert code(raw(addresses["unix"], request("GET", "/healthz", Origin="http://evil.example"))) == 200


@pytest.mark.parametrize(
    "type_",
    [
        "text/plain",
        "text/plain; charset=application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "",
        "application/jsonp",
    ],
)
def test_bodies_that_forms_send_are_refused(api: ApiStack, type_: str) -> None:
    document = {"Content_Type": type_} if type_ else {}
    sent = json.dumps({"documents": [{"text": QUICKSTART}]})
    with listeners(api) as addresses:
        for method, path, body in (
            ("POST", SANDBOXES, QUICKSTART),
            ("PUT", f"{SANDBOXES}/quickstart", QUICKSTART),
            ("PATCH", f"{SANDBOXES}/quickstart", "{}"),
            ("POST", f"{API}/apply", sent),
        ):
            answer = raw(addresses["unix"], request(method, path, body, **document))
            assert (code(answer), b"Content-Type: application/json" in answer) == (415, True), answer
    assert not api.store.list("Sandbox")[0]


@pytest.mark.parametrize("type_", ["application/json", "application/json; charset=utf-8", "application/yaml"])
def test_json_and_yaml_are_taken(api: ApiStack, type_: str) -> None:
    text = json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": "a"}, "spec": {}})
    with listeners(api) as addresses:
        answer = raw(addresses["unix"], request("POST", SANDBOXES, text, Content_Type=type_))
        assert code(answer) not in (401, 415), answer


def test_files_are_of_any_type_but_a_forms(api: ApiStack) -> None:
    api.apply()
    api.view.show(api.sandbox())
    path = f"{SANDBOXES}/quickstart/files?path=/tmp/a"
    with listeners(api) as addresses:
        for type_ in ("text/plain", "application/x-www-form-urlencoded"):
            answer = raw(addresses["unix"], request("PUT", path, "data", Content_Type=type_))
            assert (code(answer), b"application/octet-stream" in answer) == (415, True), answer
        for document in ({"Content_Type": "image/png"}, {}):
            assert code(raw(addresses["unix"], request("PUT", path, "data", **document))) == 200


def as_subprotocol(text: str) -> Subprotocol:
    return Subprotocol(BEARER + base64.urlsafe_b64encode(text.encode()).decode().rstrip("="))


def test_a_websocket_takes_its_token_as_a_subprotocol(api: ApiStack, caplog: pytest.LogCaptureFixture) -> None:
    api.apply()
    api.view.show(api.sandbox())
    caplog.set_level(logging.DEBUG, "paddock")
    page = {"Origin": "http://panel.example"}
    with listeners(api):
        text = token(api, "user", "default")
        offered = [as_subprotocol(text), Subprotocol(SPOKEN)]
        uri = f"ws://paddock{EXEC}"
        with unix_connect(str(api.socket), uri=uri, subprotocols=offered, additional_headers=page) as created:
            assert created.subprotocol == SPOKEN
            assert created.response is not None
            assert BEARER not in str(created.response.headers)
        for subprotocol in ([Subprotocol(SPOKEN)], [as_subprotocol(text + "x"), Subprotocol(SPOKEN)]):
            with (
                pytest.raises(InvalidStatus) as error,
                unix_connect(str(api.socket), uri=uri, subprotocols=subprotocol, additional_headers=page),
            ):
                pass
            assert error.value.response.status_code == 401
    assert as_subprotocol(text) not in caplog.text


@pytest.mark.parametrize(
    "offered",
    [
        BEARER,
        BEARER + "!!",
        BEARER + base64.urlsafe_b64encode(b"a\r\nX-Injected: b").decode(),
        f"{SPOKEN}, {BEARER}",
        f"{BEARER}YQ, @ @",
    ],
)
def test_a_token_that_cannot_be_read_is_refused_and_not_echoed(api: ApiStack, offered: str) -> None:
    api.apply()
    head = f"GET {EXEC} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    head += f"Sec-WebSocket-Protocol: {offered}\r\n\r\n"
    with listeners(api) as addresses:
        answer = raw(addresses["unix"], head.encode())
    assert code(answer) in (400, 401), answer
    assert BEARER.encode() + b"YQ" not in answer
    assert b"njected" not in answer


def test_two_tokens_are_not_chosen_between(api: ApiStack) -> None:
    api.apply()
    with opened(api), client(api) as local:
        assert local.get(SANDBOXES).status_code == 200
        text = token(api, "user", "default")
        document, uri = {"Authorization": f"Bearer {text}"}, f"ws://paddock{EXEC}"
        offered = [as_subprotocol(text), Subprotocol(SPOKEN)]
        with (
            pytest.raises(InvalidStatus) as error,
            unix_connect(str(api.socket), uri=uri, subprotocols=offered, additional_headers=document),
        ):
            pass
        assert error.value.response.status_code == 400


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "paddock.evil.example", "127.0.0.1.evil.example", ""]
)
def test_socket_refuses_a_foreign_host_header(api: ApiStack, host: str) -> None:
    """A page's own name may lead to a forwarded socket: then the browser sends no sign of a page but this name."""
    answer = request("POST", SANDBOXES, QUICKSTART, Content_Type="application/json")
    text = "\r\n".join(["GET /readyz HTTP/1.1", f"Host: {host}", "Connection: close"]) + "\r\n\r\n"
    with listeners(api) as addresses:
        content = raw(addresses["unix"], answer.replace(b"Host: paddock", f"Host: {host}".encode()))
        assert (code(content), b"send `Host: paddock`" in content) == (401, True), content
        assert code(raw(addresses["unix"], text.encode())) == 401
        bearer = f"Bearer {token(api, 'viewer')}"
        expected = request("GET", SANDBOXES, Authorization=bearer).replace(b"Host: paddock", f"Host: {host}".encode())
        assert code(raw(addresses["unix"], expected)) == 200
        assert code(raw(addresses["tcp"], expected)) == 200
    assert api.store.get("Sandbox", "default", "quickstart") is None


@pytest.mark.parametrize("host", ["paddock", "localhost", "LOCALHOST:8080", "127.0.0.1:9465", "[::1]", "[::1]:80"])
def test_socket_accepts_names_of_this_host(api: ApiStack, host: str) -> None:
    with listeners(api) as addresses:
        read = raw(addresses["unix"], request("GET", SANDBOXES).replace(b"Host: paddock", f"Host: {host}".encode()))
    assert code(read) == 200
