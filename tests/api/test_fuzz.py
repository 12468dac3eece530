"""Fuzzed input on each endpoint: it is refused, and the next request is served."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import unix_connect

from tests.api.listeners import API, client, opened, token
from tests.examples import examples
from tests.helpers_api import ApiStack, make_api

SANDBOX = f"{API}/namespaces/default/sandboxes/quickstart"
GOOD = (
    f"GET {SANDBOX} HTTP/1.1\r\nHost: paddock\r\nAuthorization: Bearer pdk_0123456789ab_x\r\n\r\n".encode(),
    f"POST {API}/apply HTTP/1.1\r\nHost: paddock\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
    '{"documents":1}'.encode(),
    f"PATCH {SANDBOX} HTTP/1.1\r\nHost: paddock\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode(),
    f"GET {SANDBOX}/exec?command=a HTTP/1.1\r\nHost: paddock\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode(),
)
PIECES = st.sampled_from([b"\r\n", b"\x00", b"\xff" * 9, b" ", b":", b"%00", b"%2e%2e/", b"?", b"9" * 30, b"\r\n\r\n"])
few = settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """Listeners, with one running sandbox."""
    created = make_api(tmp_path_factory.mktemp("fuzz"))
    created.apply()
    created.view.show(created.sandbox())
    with opened(created):
        yield created
    created.files.close()
    created.store.close()


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A good request after some accidents."""
    data = draw(st.sampled_from(GOOD))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(PIECES | st.binary(max_size=8)) + data[at + draw(st.integers(0, 12)) :]
    return data


def answered(api: ApiStack) -> None:
    with client(api) as created:
        assert created.get(SANDBOX).status_code == 200


@few
@given(spoiled())
def test_bytes_that_are_hardly_http(api: ApiStack, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    caplog.clear()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(30)
        link.connect(str(api.socket))
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        text = b"".join(iter(lambda: link.recv(1 << 16), b""))
    assert not text or text.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in text
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    answered(api)


@few
@given(st.binary(max_size=200) | st.from_regex(rb"Bearer pdk_[0-9a-f]{10,14}_[A-Za-z0-9_-]{30,50}", fullmatch=True))
def test_whatever_is_shown_as_a_token(api: ApiStack, shown: bytes) -> None:
    printed = bytes(number for number in shown if number not in b"\r\n\0")
    with client(api) as created:
        try:
            answer = created.get(SANDBOX, headers=[(b"Authorization", printed)])
        except (httpx.LocalProtocolError, httpx.RemoteProtocolError):
            return  # it is no header
    assert answer.status_code in (400, 401)


def test_parts_of_a_token_open_nothing(api: ApiStack) -> None:
    good = token(api, "viewer", name="whole")
    with client(api) as created:

        def code(shown: str) -> int:
            return created.get(SANDBOX, headers={"Authorization": f"Bearer {shown}"}).status_code

        assert code(good) == 200
        assert created.get(SANDBOX, headers={"Authorization": ""}).status_code == 401
        for at in range(0, len(good), 3):
            assert code(good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :]) == 401
        assert {code(good[:at]) for at in range(1, len(good), 7)} == {401}


FRAMES = st.binary(max_size=20) | st.sampled_from([b"\x04{", b"\x05{}", b"\xff", b"\xff\x00", "text"])


@settings(few, max_examples=examples(15))
@given(st.lists(FRAMES, max_size=6))
def test_frames_that_mean_nothing(api: ApiStack, caplog: pytest.LogCaptureFixture, sent: list[Any]) -> None:
    caplog.clear()
    try:
        uri = f"ws://paddock{SANDBOX}/exec?command=a&stdin=true&tty=true"
        with unix_connect(str(api.socket), uri=uri) as link:
            for entry in sent:
                link.send(entry)
            received = list(link)
    except (ConnectionClosed, InvalidStatus):
        received = []
    for single in received:
        assert isinstance(single, bytes)
        if single[0] == 3:
            assert json.loads(single[1:])["kind"] == "Status"
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    answered(api)


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"x"', b"1e999", b"NaN", b"[" * 5000, b'{"a":' * 5000, b"\xff", b'{"documents":{}}']
)
def test_unexpected_body_is_refused(api: ApiStack, body: bytes) -> None:
    with client(api) as created:
        answer = created.post(f"{API}/apply", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert answer.json()["kind"] == "Status"
