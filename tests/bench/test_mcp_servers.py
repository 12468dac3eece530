"""Other people's MCP servers: a call, a warm start, a disconnect, and the daemon's memory for many sessions."""

import http.client
import json
import os
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker as docker_py
import pytest

from tests.bench.test_mcp import META, resident_mib
from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(600)]
SCRIPT = (Path(__file__).parents[1] / "mcpserver" / "scripted_server.py").read_text()
PLACE = "/apis/paddock/v1alpha1/namespaces/default/mcpservers"
CALLS, STARTS, SESSIONS = 200, 7, 50
OWN_START = """
import json, subprocess, sys, time
begun = time.perf_counter()
server = subprocess.Popen(["python3", "-c", *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for method in ("initialize", "tools/list"):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": {}}).encode() + b"\\n")
    server.stdin.flush()
    while b'"id": "' + method.encode() not in server.stdout.readline():
        pass
print(time.perf_counter() - begun)
server.kill()
"""


def document(name: str, **spec: Any) -> str:
    body = {"command": "python3", "args": ["-c", SCRIPT, "none"], **spec}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": body})


class Connection:
    """A kept connection of a client, with its own session, and requests without an SDK."""

    def __init__(self, daemon: RunningDaemon, server: str, name: str) -> None:
        self._path, self._name = f"{PLACE}/{server}/mcp", name
        self._held, self._http = self._connected(daemon), self._connected(daemon)
        self._held.request("GET", self._path, headers={"Paddock-Connection": name})
        assert self._held.getresponse().status == 200

    def _connected(self, daemon: RunningDaemon) -> http.client.HTTPConnection:
        http_connection = http.client.HTTPConnection("localhost")
        http_connection.sock = socket.socket(socket.AF_UNIX)
        http_connection.sock.connect(str(daemon.socket))
        return http_connection

    def call(self) -> float:
        """Call a tool; return the seconds that it took."""
        params = {"name": "echo", "arguments": {"text": "x"}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "echo",
            "Paddock-Connection": self._name,
        }
        start = time.perf_counter()
        self._http.request("POST", self._path, body, headers)
        answer = self._http.getresponse().read()
        took = time.perf_counter() - start
        result = json.loads(answer)["result"]
        assert not result.get("isError"), result
        return took

    def close(self) -> None:
        for http_connection in (self._held, self._http):
            http_connection.sock.shutdown(socket.SHUT_RDWR)
            http_connection.close()


def test_mcp_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    lines = []
    try:
        with running(tmp_path) as daemon:
            daemon.apply(document("warm", warmReplicas=2))

            def containers() -> list[str]:
                observed = engine.api.containers(
                    all=True, filters={"label": f"paddock.instance={daemon.instance_id()}"}
                )
                return [entry["Id"] for entry in observed]

            def members() -> int:
                observed = json.loads(daemon.paddock("get", "sandboxpools", "-o", "json").stdout)["items"]
                return int(observed[0].get("status", {}).get("readyReplicas", 0)) if observed else 0

            wait_for("the pool is full", lambda: members() == 2, 60)
            first = Connection(daemon, "warm", "first")
            first.call()
            lines.append(_calls(daemon, first))
            first.close()
            lines += _starts(daemon, engine, members, containers)
            lines.append(_memory(daemon, containers))
    finally:
        engine.close()
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def _calls(daemon: RunningDaemon, connection: Connection) -> str:
    """Measure calls. The daemon's own CPU time shows what they cost on a host that others use, too."""
    before = _cpu_seconds(daemon)
    times = sorted(connection.call() for _ in range(CALLS))
    cpu = (_cpu_seconds(daemon) - before) / CALLS * 1000
    p50, p99 = times[CALLS // 2] * 1000, times[CALLS * 99 // 100] * 1000
    message = f"tool call through the gateway: p50 {p50:.1f} ms (allowed 5), p99 {p99:.1f} ms"
    return f"{message}; {cpu:.1f} ms of the daemon's CPU each"


def _cpu_seconds(daemon: RunningDaemon) -> float:
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _starts(
    daemon: RunningDaemon,
    engine: docker_py.DockerClient,
    members: Callable[[], int],
    containers: Callable[[], list[str]],
) -> list[str]:
    firsts, its_own, removed = [], [], []
    for number in range(STARTS):
        wait_for("the pool is full", lambda: members() == 2, 60)
        before = containers()
        connection = Connection(daemon, "warm", f"start-{number}")
        firsts.append(connection.call())
        wait_for("its session", lambda: _sessions(daemon) == 1, 60)
        sandbox = json.loads(daemon.paddock("get", "sandboxes", "-o", "json").stdout)["items"][0]
        container = engine.containers.get(sandbox["status"]["instanceRef"]["containerID"])
        assert container.id in before, "it was started cold"
        output = container.exec_run(["python3", "-c", OWN_START, SCRIPT, "none"]).output
        its_own.append(float(output))
        started_at = time.perf_counter()
        connection.close()
        while container.id in containers():
            time.sleep(0.01)
        removed.append(time.perf_counter() - started_at)
    first, start, end = (statistics.median(group) * 1000 for group in (firsts, its_own, removed))
    return [
        f"warm sandbox to first tool: {first:.0f} ms, of which the server's own start {start:.0f} ms"
        f" (allowed {250 + start:.0f})",
        f"disconnect to sandbox gone: {end:.0f} ms (allowed 2000)",
    ]


def _sessions(daemon: RunningDaemon) -> int:
    return len(json.loads(daemon.paddock("get", "sandboxes", "-o", "json").stdout)["items"])


def _memory(daemon: RunningDaemon, containers: Callable[[], list[str]]) -> str:
    daemon.apply(document("many", limits={"memory": "128Mi", "cpu": "100m"}))
    daemon.paddock("delete", "mcpserver", "warm")
    wait_for("no container is left", lambda: not containers(), 60)
    before, reserved = resident_mib(daemon), []
    try:
        for number in range(SESSIONS):
            reserved.append(Connection(daemon, "many", f"many-{number}"))
            reserved[-1].call()
        entry = (resident_mib(daemon) - before) / SESSIONS
        return f"{SESSIONS} sessions of 128Mi: {entry:.2f} MiB of the daemon each (allowed 1)"
    finally:
        start = time.perf_counter()
        for connection in reserved:
            connection.close()
        wait_for("no container is left", lambda: not containers(), 120)
        print(f"{SESSIONS} sessions gone {time.perf_counter() - start:.1f} s after their disconnect")
