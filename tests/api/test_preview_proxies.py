"""Clients of previews behind proxies: only a trusted proxy's word about them holds."""

import ipaddress
from typing import Any

import pytest

from controller.api.preview.proxies import PreviewClient, Proxies

_PROXIES = Proxies((ipaddress.ip_network("127.0.0.1"), ipaddress.ip_network("10.0.0.0/24")))


def _client(peer: str, *headers: tuple[bytes, bytes]) -> PreviewClient:
    scope: dict[str, Any] = {"type": "http", "client": (peer, 1), "headers": headers}
    return _PROXIES.client(scope)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("127.0.0.1", [b"203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", [b"198.51.100.1, 203.0.113.9, 10.0.0.7"], "203.0.113.9"),  # what the client itself wrote is left
        ("127.0.0.1", [b"198.51.100.1", b"2001:db8::1"], "2001:db8::1"),
        ("::ffff:127.0.0.1", [b"203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", [b"<script>"], "127.0.0.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("203.0.113.5", [b"127.0.0.1"], "203.0.113.5"),
    ],
)
def test_the_last_foreign_address_is_the_clients(peer: str, forwarded: list[bytes], address: str) -> None:
    assert _client(peer, *((b"x-forwarded-for", value) for value in forwarded)).address == address


def test_the_scheme_is_the_last_proxys() -> None:
    assert _client("127.0.0.1", (b"x-forwarded-proto", b"https, HTTP")).scheme == "http"
    assert _client("203.0.113.5", (b"x-forwarded-proto", b"http")).scheme == ""
    assert _client("127.0.0.1").scheme == ""
