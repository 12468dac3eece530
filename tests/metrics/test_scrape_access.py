"""The metrics door with a lock: the token's file, and TLS with a certificate made for the test."""

import http.client
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.metrics.registry import Registry
from controller.metrics.scrape_access import ScrapeAccess, ScrapeAccessError, load_scrape_access
from controller.metrics.server import MOST_WAITING, MetricsServer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return cert, key


def test_nothing_is_asked_by_default() -> None:
    assert load_scrape_access(None, None, None) == ScrapeAccess(None, None)


def test_the_token_is_the_files_only_word(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame\n")
    assert load_scrape_access(tmp_path / "token", None, None).token == "sesame"


@pytest.mark.parametrize("text", ["", "\n", "two words", "über", "a\nb"])
def test_a_file_without_a_token_leaves_the_listener_shut(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(ScrapeAccessError, match="write one word"):
        load_scrape_access(tmp_path / "token", None, None)


def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(ScrapeAccessError, match=r"metrics_token_file .*/none: No such file"):
        load_scrape_access(tmp_path / "none", None, None)
    with pytest.raises(ScrapeAccessError, match="only one is set"):
        load_scrape_access(None, tmp_path / "cert", None)
    with pytest.raises(ScrapeAccessError, match="name readable PEM files"):
        load_scrape_access(None, tmp_path / "cert", tmp_path / "key")


def test_scrapes_over_tls_and_only_over_tls(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    server = MetricsServer(Registry(), port=0, tls=load_scrape_access(None, cert, key).tls)
    server.start()
    try:
        trusting = ssl.create_default_context(cafile=str(cert))
        secured = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=trusting)
        secured.request("GET", "/metrics")
        answer = secured.getresponse()
        assert (answer.status, b"paddock_metrics_errors_total" in answer.read()) == (200, True)
        secured.close()
        plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        plain.request("GET", "/metrics")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            plain.getresponse()
        plain.close()
    finally:
        server.stop()


def test_handshakes_that_never_end_leave_places_for_scrapers(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.metrics.server.HEAD_SECONDS", 600)
    cert, key = certificate
    server = MetricsServer(Registry(), port=0, tls=load_scrape_access(None, cert, key).tls)
    server.start()
    try:
        with ExitStack() as stack:
            for _ in range(MOST_WAITING + 16):
                enter_context = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
                enter_context.sendall(b"\x16\x03\x01")
            trusting = ssl.create_default_context(cafile=str(cert))
            secured = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=trusting)
            secured.request("GET", "/metrics")
            assert secured.getresponse().status == 200
            secured.close()
    finally:
        server.stop()


def test_a_key_with_a_passphrase_is_refused_without_asking(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(certificate[1]), "-out", str(locked), "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with pytest.raises(ScrapeAccessError, match="without a passphrase"):
        load_scrape_access(None, certificate[0], locked)
