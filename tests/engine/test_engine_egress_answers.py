"""Answers of the egress image to refused requests: they name the host, and say that it was refused."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from controller.policy.network.egress import IMAGE, PORT, squid_conf
from tests.daemon import docker, wait_for

pytestmark = pytest.mark.docker


def get(proxy: str, url: str, *options: str) -> str:
    """Return what curl prints through that proxy: the body, the status, and its error."""
    asked = ["curl", "-sS", "-m", "5", "-x", proxy, "-w", "\n%{http_code}", *options, url]
    return subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30).stdout


@pytest.fixture(scope="module")
def proxy() -> Iterator[str]:
    name = f"paddock-test-egress-{os.getpid()}"
    docker(
        *("run", "-d", "--name", name, "--dns", "127.0.0.1", "--sysctl", "net.ipv4.ip_unprivileged_port_start=53"),
        *("--tmpfs", "/run:uid=13,gid=13", "--tmpfs", "/tmp:uid=13,gid=13"),
        *("-e", f"PADDOCK_SQUID_CONF={squid_conf(['listed.example.org'])}", IMAGE),
    )
    try:
        address = docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", name)
        found = f"http://{address}:{PORT}"
        wait_for("the proxy answers", lambda: get(found, "http://other.example.org/").endswith("403"), 30)
        yield found
    finally:
        docker("rm", "-f", name)


def test_a_refused_host_is_named_in_words(proxy: str) -> None:
    words = "paddock: other.example.org is not in this sandbox's allowed hosts"
    assert get(proxy, "http://other.example.org/").splitlines()[0].startswith(words)
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
