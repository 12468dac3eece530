"""TLS to providers: the authorities of this host are trusted, and a wrong certificate is refused with words."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.mounts.authority import Authority
from controller.gateway.config import Target
from controller.gateway.upstream import Upstream, UpstreamError, tls_context

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Provider:
    """A provider on this host whose certificate is for these names. `seen` are the requests that reached it."""

    def __init__(self, folder: Path, *names: str) -> None:
        authority, self.seen = Authority(folder / "authority"), list[bytes]()
        (folder / "ca.pem").write_bytes(authority.certificate())
        (folder / "tls.pem").write_bytes(authority.issue(names))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "tls.pem")
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(link, server_side=True) as secured:
                    self.seen.append(secured.recv(65536))
                    secured.sendall(ANSWER)
            except OSError:
                continue

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(60)

    def ask(self, authority: str = "") -> bytes:
        async def request() -> bytes:
            base = f"https://localhost:{self.port}/v1"
            target = Target("uid", "default", "own", "OpenAI", ("*",), base, "key", True, authority=authority)
            upstream = Upstream(target, tls_context(), NotImplemented)
            try:
                async with upstream.send("GET", "/models", [], b"") as answer:
                    return b"".join([entry async for entry in answer.parts])
            finally:
                await upstream.close()

        return asyncio.run(request())


@pytest.fixture
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    created = Provider(tmp_path, *request.param)
    yield created
    created.close()


@pytest.mark.parametrize("provider", [("localhost",)], indirect=True)
def test_authorities_of_this_host_are_trusted(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert provider.ask() == b"ok"
    assert b"Authorization: Bearer key" in provider.seen[0]


@pytest.mark.parametrize(
    ("provider", "trusted", "words"),
    [
        (("other.example.org",), True, "its certificate is refused (Hostname mismatch"),
        (("localhost",), False, "its certificate is refused (unable to get local issuer certificate"),
    ],
    indirect=["provider"],
)
def test_a_wrong_certificate_is_refused_with_words(
    provider: Provider, trusted: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(UpstreamError) as refusal:
        provider.ask()
    assert refusal.value.reason == "Unreachable"
    assert words in str(refusal.value)
    assert provider.seen == []


@pytest.mark.parametrize("provider", [("localhost",)], indirect=True)
def test_authorities_of_its_own_are_the_only_ones(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provider.ask((tmp_path / "ca.pem").read_text()) == b"ok"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(UpstreamError, match="check its URL, and its certificateAuthority"):
        provider.ask(Authority(tmp_path / "another").certificate().decode())
    assert len(provider.seen) == 1
