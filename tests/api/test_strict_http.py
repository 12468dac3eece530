"""Requests that two parsers could read differently: refused, and their connections closed, before the application."""

import json
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.api.listeners import API, certificate, client, opened, token
from tests.api.test_web_pages import SANDBOXES, code, listeners, raw
from tests.helpers_api import QUICKSTART, ApiStack

REQUEST = b"POST " + SANDBOXES.encode() + b" HTTP/1.1\r\nHost: paddock\r\nContent-Type: application/yaml\r\n"
BODY = QUICKSTART.encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
IN_CHUNKS = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
# What a second parser would take for a request of its own: it must never be answered.
HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: paddock\r\n\r\n"
REFUSED = {
    "two lengths": (
        REQUEST + LENGTH + CHUNKED + b"\r\n" + IN_CHUNKS + b"\r\n",
        b"Content-Length and Transfer-Encoding",
    ),
    "two lengths, the other way": (
        REQUEST + CHUNKED + b"cONTENT-lENGTH: 0\r\n\r\n" + IN_CHUNKS + b"\r\n",
        b"Content-Length and Transfer-Encoding",
    ),
    "bare LF": ((REQUEST + LENGTH).replace(b"\r\n", b"\n") + b"\n" + BODY, b"bare LF"),
    "one bare LF": (REQUEST + b"X-A: b\n" + LENGTH + b"\r\n" + BODY, b"bare LF"),
    "bare LF at the end": (REQUEST + LENGTH + b"\n" + BODY, b"bare LF"),
    "bare CR": (REQUEST + b"X-A: b\rX-B: c\r\n" + LENGTH + b"\r\n" + BODY, b"bare LF or CR"),
    "folded": (REQUEST + b"X-A: b\r\n c\r\n" + LENGTH + b"\r\n" + BODY, b"continues on the next line"),
    "folded by a tab": (REQUEST + b"X-A: b\r\n\tc\r\n" + LENGTH + b"\r\n" + BODY, b"continues on the next line"),
}


@pytest.mark.parametrize("listener", ["unix", "tcp"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_parsers_read_differently_is_refused(api: ApiStack, listener: str, name: str) -> None:
    sent, why = REFUSED[name]
    with listeners(api) as addresses:
        reserved = b"Authorization: Bearer " + token(api, "user").encode() + b"\r\nHost: paddock\r\n"
        answer = raw(addresses[listener], sent.replace(b"Host: paddock\r\n", reserved, 1) + HIDDEN)
    assert code(answer) == 400, answer
    assert answer.count(b"HTTP/1.1") - answer.count(b"not HTTP/1.1") == 1, "what follows is not answered"
    assert why in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["kind"] == "Status"
    assert not api.store.list("Sandbox")[0]


@pytest.mark.parametrize("end", [b"\n", b"X-A: b\n\r\n", b"X-A: b\r\n c\r\n\r\n"])
def test_the_end_of_a_chunked_body_is_as_strict(api: ApiStack, end: bytes) -> None:
    with listeners(api) as addresses:
        answer = raw(addresses["unix"], REQUEST + CHUNKED + b"\r\n" + IN_CHUNKS + end + HIDDEN)
    assert (code(answer), answer.count(b"HTTP/1.1 ")) == (400, 1), answer
    assert not api.store.list("Sandbox")[0]


def test_requests_that_are_right_follow_each_other(api: ApiStack) -> None:
    last = HIDDEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with listeners(api) as addresses:
        chunked = REQUEST + CHUNKED + b"\r\n" + IN_CHUNKS + b"X-Trailer: a\r\n\r\n"
        answer = raw(addresses["unix"], HIDDEN + chunked + REQUEST + LENGTH + b"\r\n" + BODY + last)
    assert [int(entry[:3]) for entry in answer.split(b"HTTP/1.1 ")[1:]] == [200, 201, 409, 200]


def test_a_head_in_single_bytes_is_read(api: ApiStack) -> None:
    with listeners(api) as addresses, socket.socket(socket.AF_UNIX) as created:
        created.connect(addresses["unix"])
        for at in range(len(HIDDEN)):
            created.sendall(HIDDEN[at : at + 1])
        assert created.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_tls_is_as_strict(api: ApiStack, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with opened(api, host="127.0.0.1", cert=cert, key=key) as observed:
        address = urlsplit(observed.url)
        context = ssl.create_default_context(cafile=str(cert))
        with (
            socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(REFUSED["two lengths"][0])
            assert secured.recv(4096).startswith(b"HTTP/1.1 400 ")
    with opened(api), client(api) as local:
        assert local.get(f"{API}/namespaces/default/sandboxes").json()["items"] == []
