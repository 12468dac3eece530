"""Answers of the egress image to refused requests: they name the host, and say that it was refused."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest

from controller.policy.network.egress import IMAGE, PORT, squid_conf
from tests.daemon import docker, wait_for

pytestmark = pytest.mark.docker


def get(proxy: str, url: str, *options: str) -> str:
    """Return what curl prints through that proxy: the body, the status, and its error."""
    requested = ["curl", "-sS", "-m", "5", "-x", proxy, "-w", "\n%{http_code}", *options, url]
    return subprocess.run(requested, capture_output=True, text=True, check=False, timeout=30).stdout


@contextmanager
def egress(name: str, configuration: str) -> Iterator[str]:
    """Run a proxy, and return its URL."""
    docker(
        *("run", "-d", "--name", name, "--dns", "127.0.0.1", "--sysctl", "net.ipv4.ip_unprivileged_port_start=53"),
        *("--tmpfs", "/run:uid=13,gid=13", "--tmpfs", "/tmp:uid=13,gid=13"),
        *("-e", f"PADDOCK_SQUID_CONF={configuration}", IMAGE),
    )
    try:
        url = f"http://{address_of(name)}:{PORT}"
        wait_for("the proxy answers", lambda: get(url, "http://other.example.org/").endswith("403"), 30)
        yield url
    finally:
        docker("rm", "-f", name)


def address_of(container: str) -> str:
    return docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", container)


@pytest.fixture(scope="module")
def proxy() -> Iterator[str]:
    with egress(f"paddock-test-egress-{os.getpid()}", squid_conf(["listed.example.org"])) as url:
        yield url


def test_a_refused_host_is_named_in_words(proxy: str) -> None:
    message = "paddock: other.example.org is not in this sandbox's allowed hosts"
    assert get(proxy, "http://other.example.org/").splitlines()[0].startswith(message)
    assert "paddock: listed.example.org is reached on port" in get(proxy, "http://listed.example.org:8080/")


def connect(proxy: str, host: str) -> tuple[str, str]:
    """Ask for a tunnel, and return the status line and the body of the answer."""
    connection = HTTPConnection(proxy.removeprefix("http://"), timeout=5)
    with closing(connection):
        connection.request("CONNECT", host)
        answer = connection.getresponse()
        return f"{answer.status} {answer.reason}", answer.read().decode()


@pytest.mark.parametrize(
    ("host", "status", "words"),
    [
        ("other.example.org:443", "403 Forbidden", "other.example.org is not in this sandbox's allowed hosts"),
        ("listed.example.org:22", "403 Forbidden", "listed.example.org is reached on port 443"),
        ("listed.example.org:443", "503 Service Unavailable", "listed.example.org does not resolve: a failure of DNS"),
    ],
)
def test_a_refused_tunnel_is_answered_in_plain_http(proxy: str, host: str, status: str, words: str) -> None:
    """No certificate error: curl, git, pip and npm print the status."""
    line, body = connect(proxy, host)
    assert line == status
    assert words in body


# A proxy that knows no name: it answers itself, and prints what it was asked for. In tunnels it speaks TLS.
UPSTREAM = """
import http.server, ssl, subprocess
command = "openssl req -x509 -newkey rsa:2048 -noenc -subj /CN=listed.example.org -keyout /tmp/k -out /tmp/c"
subprocess.run(command.split(), check=True)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain("/tmp/c", "/tmp/k")
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.command, self.path, flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "8")
        self.end_headers()
        self.wfile.write(b"upstream")
    def do_CONNECT(self):
        print(self.command, self.path, flush=True)
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        self.request = tls.wrap_socket(self.connection, server_side=True)
        self.setup()
        self.close_connection = False
http.server.ThreadingHTTPServer(("", 3128), Proxy).serve_forever()
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """Name of the container of a proxy that alone reaches the Internet."""
    name = f"paddock-test-upstream-{os.getpid()}"
    docker("run", "-d", "--name", name, "--user", "0", "paddock/python:1", "python3", "-c", UPSTREAM)
    try:
        yield name
    finally:
        docker("rm", "-f", name)


def test_all_that_is_allowed_goes_to_an_upstream_proxy(upstream: str) -> None:
    configuration = squid_conf(["listed.example.org"], upstream=f"{address_of(upstream)}:3128")
    with egress(f"paddock-test-behind-{os.getpid()}", configuration) as proxy:
        # Squid takes a proxy that did not listen at first for dead, and tries it again at the next request.
        for url in ("http://listed.example.org/a", "https://listed.example.org/b"):
            wait_for("the upstream proxy answers", lambda url=url: get(proxy, url, "-k") == "upstream\n200", 60)
        assert get(proxy, "https://other.example.org/", "-k").endswith("\n000")
        assert "not in this sandbox's allowed hosts" in get(proxy, "http://other.example.org/")
        # Another name inside of an allowed tunnel, and an address that is none of the Internet's.
        assert get(proxy, "https://other.example.org/", "-k", "--connect-to", "::listed.example.org:443").endswith(
            "\n000"
        )
        assert get(proxy, "http://169.254.169.254/").endswith("\n403")
        requests = set(docker("logs", upstream).splitlines())
        assert requests == {
            "GET http://listed.example.org/a",
            "CONNECT listed.example.org:443",
            "GET /b",
        }
