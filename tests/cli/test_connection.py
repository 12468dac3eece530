"""Address of the daemon, and the errors if it does not answer."""

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from controller.cli.fleet_certificates import new_authority, new_certificate
from controller.cli.main import cli
from controller.cli.options import DURATION
from paddock._client.server import locate
from tests.helpers_api import ApiStack


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDOCK_SERVER", "PADDOCK_SOCKET", "XDG_RUNTIME_DIR", "PADDOCK_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def test_the_existing_socket_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(locate(None)) == "unix:///run/paddock/paddock.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert str(locate(None)) == "unix:///run/paddock/paddock.sock"
    (tmp_path / "paddock.sock").touch()
    assert str(locate(None)) == f"unix://{tmp_path}/paddock.sock"
    monkeypatch.setenv("PADDOCK_SOCKET", "/other.sock")
    assert str(locate(None)) == "unix:///other.sock"
    assert str(locate("http://host:1234/")) == "http://host:1234"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_a_foreign_socket_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # as `su` leaves it
    (tmp_path / "paddock.sock").touch()
    os.chown(tmp_path / "paddock.sock", 4711, 4711)
    assert str(locate(None)) == "unix:///run/paddock/paddock.sock"


def test_the_environment_names_the_server(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_SERVER", f"unix://{served.socket}")
    assert CliRunner().invoke(cli, ["get", "sb"]).exit_code == 0


@pytest.mark.parametrize("words", [["get", "sb"], ["exec", "a", "--", "true"], ["logs", "a"], ["version", "--daemon"]])
def test_a_missing_daemon_is_reported_with_a_remedy(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["--server", f"unix://{tmp_path}/none.sock", *words])
    assert done.exit_code == 1
    assert f"error: no Paddock daemon answers at unix://{tmp_path}/none.sock (" in done.stderr
    assert "start it with `make up` or `paddock serve`" in done.stderr


def test_an_invalid_address_is_a_usage_error() -> None:
    done = CliRunner().invoke(cli, ["--server", "ftp://x", "get", "sb"])
    assert done.exit_code == 2
    assert "write unix:///path/to/socket or http://host:port" in done.stderr


def test_a_foreign_server_is_reported(tmp_path: Path) -> None:
    """The first connection is the command's check that the daemon is there."""
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            listening.accept()[0].close()
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        done = CliRunner().invoke(cli, ["--server", f"unix://{path}", "get", "sb"])
        thread.join()
    assert done.exit_code == 1
    assert "check --server" in done.stderr


def test_tcp_works_too(api: ApiStack) -> None:
    """TCP relay to the daemon, which serves the Unix socket only."""
    server = api.server()
    server.start()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_relay, args=(listening, api.socket))
        thread.start()
        done = CliRunner().invoke(
            cli, ["--server", f"http://127.0.0.1:{listening.getsockname()[1]}", "version", "--daemon"]
        )
        thread.join()
    server.stop()
    assert "daemon 0.1.0" in done.stdout


def _relay(listening: socket.socket, path: Path) -> None:
    """Relay one connection both ways until both ends close."""
    client, _ = listening.accept()
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.connect(str(path))
        back = threading.Thread(target=_carry, args=(daemon, client))
        back.start()
        _carry(client, daemon)
        back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def tls_port(tmp_path: Path) -> Iterator[int]:
    """Port of a server with TLS, whose authority nobody knows."""
    certificate = new_certificate(new_authority(), "localhost")
    (tmp_path / "both.pem").write_bytes(certificate.cert + certificate.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "both.pem")

    def serve() -> None:
        with contextlib.suppress(OSError):  # of accept(): the end
            while True:
                client = listening.accept()[0]
                with client, contextlib.suppress(OSError):
                    tls.wrap_socket(client, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("words", [["get", "sb"], ["exec", "a", "--", "true"]])
def test_a_certificate_that_is_not_trusted_is_named(tls_port: int, words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["--server", f"https://localhost:{tls_port}", *words])
    assert done.exit_code == 1
    assert f"error: https://localhost:{tls_port}: its certificate is not trusted (" in done.stderr
    assert "PADDOCK_CA_FILE" in done.stderr
    assert "make up" not in done.stderr


def test_plain_http_to_a_port_with_tls(tls_port: int) -> None:
    done = CliRunner().invoke(cli, ["--server", f"http://localhost:{tls_port}", "get", "sb"])
    assert (done.exit_code, "if its port is one with TLS, write https://" in done.stderr) == (1, True)
    nobody = CliRunner().invoke(cli, ["--server", "http://localhost:1", "get", "sb"])
    assert (nobody.exit_code, "https://" in nobody.stderr) == (1, False)


def test_missing_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")  # root, who runs the tests in CI, is never refused

    monkeypatch.setattr(socket.socket, "connect", refused)
    done = CliRunner().invoke(cli, ["--server", f"unix://{tmp_path}/p.sock", "get", "sb"])
    assert done.exit_code == 1
    assert f"no permission to use {tmp_path}/p.sock; run this as root" in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("2m", 120), ("1h30m", 5400), ("500ms", 0.5), ("7", 7), ("1.5s", 1.5), ("1d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds
