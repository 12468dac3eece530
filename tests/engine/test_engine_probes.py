"""Probes of a real sandbox with network `none`, also against hostile answers."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.engine.kernel.network_namespace import NetworkUnreachable, socket_in
from controller.kinds.observed.observed import Container
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.probe import Probe, ProbeResult, Watch
from tests.contract.engine_hosts import EngineHost, docker_host

pytestmark = pytest.mark.docker

# One port a line: what is answered there to whoever connects.
SERVER = r"""
import socket, threading, time
TEXTS = {
    8001: b"HTTP/1.1 200 OK\r\n\r\nhello",
    8002: b"HTTP/1.0 503 Not Yet\r\n\r\n",
    8003: b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:8002/\r\n\r\n",
    8004: b"SSH-2.0-not-http\r\n",
    8005: b"HTTP/1.1 100 Continue\r\n\r\n" * 100000,
    8006: b"x" * (8 << 20),
    8007: None,
    8008: b"",
}
def answer(link, text):
    try:
        while text is None:
            link.sendall(b"H")
            time.sleep(0.2)
        link.recv(65536)
        link.sendall(text)
        link.close()
    except OSError:
        pass
def serve(port, text):
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            threading.Thread(target=answer, args=(server.accept()[0], text)).start()
for port, text in TEXTS.items():
    threading.Thread(target=serve, args=(port, text)).start()
print("up", flush=True)
"""


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


@pytest.fixture(scope="module")
def sandbox(host: EngineHost) -> Container:
    limits = Limits(cpu_millicores=1000, memory_bytes=128 << 20, pids=64)
    command = ("python3", "-c", SERVER)
    running = host.running(host.new_uid(), image="paddock/python:1", command=command, limits=limits)
    for chunk in host.streams.logs(running.id, follow=True):
        assert b"up" in chunk.data
        break
    return running


def watch(sandbox: Container, **asked: Any) -> Watch:
    return Watch("readiness", Probe.model_validate(asked), (sandbox.id, sandbox.started_at), sandbox.pid, 0.0)


HTTP = {
    8001: ProbeResult("success"),
    8002: ProbeResult("failure", "GET /ready on port 8002: HTTP status 503"),
    8003: ProbeResult("success"),
    8004: ProbeResult("failure", "port 8004: the answer is not HTTP: SSH-2.0-not-http"),
    8005: ProbeResult("failure", "GET /ready on port 8005: HTTP status 100"),
    8006: ProbeResult("failure", f"port 8006: the answer is not HTTP: {'x' * 200}"),
    8007: ProbeResult("failure", "port 8007: no answer within 1 s"),
    8008: ProbeResult("failure", "port 8008: the answer is not HTTP: nothing"),
    8009: ProbeResult("failure", "port 8009: connection refused"),
}


@pytest.mark.parametrize("port", HTTP)
def test_http(host: EngineHost, sandbox: Container, port: int) -> None:
    assert host.probes.probe(watch(sandbox, httpGet={"port": port, "path": "/ready"})) == HTTP[port]


def test_tcp(host: EngineHost, sandbox: Container) -> None:
    assert host.probes.probe(watch(sandbox, tcpSocket={"port": 8007})) == ProbeResult("success")
    assert host.probes.probe(watch(sandbox, tcpSocket={"port": 8009})).outcome == "failure"


def test_https_to_what_is_no_tls_fails(host: EngineHost, sandbox: Container) -> None:
    assert host.probes.probe(watch(sandbox, httpGet={"port": 8001, "scheme": "HTTPS"})).outcome == "failure"


def test_a_command_that_never_stops_talking_is_ended(host: EngineHost, sandbox: Container) -> None:
    talk = ["python3", "-c", "while True: print('x' * 4096)"]
    document = {"exec": {"command": talk}, "timeoutSeconds": 30}
    assert host.probes.probe(watch(sandbox, **document)) == ProbeResult("failure", "the command wrote more than 64 KiB")


def test_no_thread_stays_in_the_sandbox(host: EngineHost, sandbox: Container) -> None:
    socket_in(sandbox.pid, sandbox.id).close()
    assert not any(thread.name == "engine-netns" for thread in threading.enumerate())


def test_a_probe_never_enters_a_reused_pid(sandbox: Container) -> None:
    with pytest.raises(NetworkUnreachable, match="no longer belongs to container"):
        socket_in(os.getpid(), sandbox.id)
    with pytest.raises(NetworkUnreachable, match="no longer belongs to container 000000000000"):
        socket_in(sandbox.pid, "0" * 64)
