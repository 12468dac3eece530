"""Credentials that a client sends, and cases in which it sends none."""

import pytest

from paddock._client.credentials import authorization
from paddock._client.errors import ClientError
from paddock._client.server import locate

TOKEN = {"Authorization": "Bearer pdk_x"}


@pytest.mark.parametrize(
    "address", ["http://192.0.2.7:9465", "http://paddock.example.org", "http://[2001:db8::1]:9465"]
)
def test_no_token_over_plain_http_to_another_host(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.delenv("PADDOCK_TOKEN_FILE", raising=False)
    monkeypatch.setenv("PADDOCK_TOKEN", "pdk_x")
    with pytest.raises(ClientError, match=r"would be sent unencrypted to .*; use https://"):
        authorization(locate(address))
    assert authorization(locate(address.replace("http:", "https:"))) == TOKEN
    monkeypatch.delenv("PADDOCK_TOKEN")
    assert authorization(locate(address)) == {}


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9465", "http://[::1]:1", "http://localhost:1", "unix:///run/p.sock"]
)
def test_a_token_over_plain_http_on_loopback(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.delenv("PADDOCK_TOKEN_FILE", raising=False)
    monkeypatch.setenv("PADDOCK_TOKEN", "pdk_x")
    assert authorization(locate(address)) == TOKEN
