"""MCP: the first request, a command against docker-py, many clients, and the daemon's memory."""

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import docker as docker_py
import pytest

from tests.bench.test_exec import alternately
from tests.daemon import ROOT, RunningDaemon, running
from tests.mcpserver.clients import client
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker]
CLIENTS, CALLS = 20, 20
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: exec}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi, cpu: "2"}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
WITH_AGENT = SANDBOX.replace("name: exec", "name: agent").replace('"1000000"]', '"1000000"], agent: {}')
EXEC = {"name": "docker.container.exec", "arguments": {"id": "exec", "command": ["true"]}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Caller:
    """A kept connection, and requests without an SDK: what the daemon takes is measured, not a client."""

    def __init__(self, listener: Path) -> None:
        self._http = http.client.HTTPConnection("localhost")
        self._http.sock = socket.socket(socket.AF_UNIX)
        self._http.sock.connect(str(listener))

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}})
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **({"Mcp-Name": params["name"]} if "name" in params else {}),
        }
        self._http.request("POST", "/mcp", body, headers)
        result: dict[str, Any] = json.loads(self._http.getresponse().read())["result"]
        return result

    def exec(self, sandbox: str = "exec") -> int:
        called = {**EXEC, "arguments": {"id": sandbox, "command": ["true"]}}
        exit_code: int = self.request("tools/call", **called)["structuredContent"]["exitCode"]
        return exit_code


def resident_mib(daemon: RunningDaemon) -> float:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def test_mcp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    lines = []
    try:
        with running(tmp_path) as daemon, Paddock(f"unix://{daemon.socket}") as paddock:
            daemon.apply(f"{SANDBOX}---{WITH_AGENT}")
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/exec", "sandbox/agent")
            sandbox = paddock.sandbox("exec")
            assert sandbox.exec(["true"]).exit_code == 0
            idle = resident_mib(daemon)
            caller, start = Caller(daemon.socket), time.perf_counter()
            assert caller.request("tools/list")["tools"]
            first, loaded = time.perf_counter() - start, resident_mib(daemon)
            lines.append(f"first request: {first:.2f} s (allowed 0.8)")
            lines.append(f"memory: {idle:.0f} MiB before, {loaded - idle:+.0f} MiB after it (allowed 25)")
            container = engine.containers.get(daemon.get("exec")["status"]["instanceRef"]["name"])
            by_agent, by_mcp, by_api, bare = alternately(
                lambda: caller.exec("agent"),
                caller.exec,
                lambda: sandbox.exec(["true"]).exit_code,
                lambda: container.exec_run(["true"], demux=True).exit_code,
            )
            lines.append(f"docker.container.exec of true with an agent, p50: {by_agent * 1000:.1f} ms; allowed: 12 ms")
            lines.append(
                f"docker.container.exec of true, p50: {by_mcp * 1000:.1f} ms, {by_api * 1000:.1f} ms by the API,"
                f" {bare * 1000:.1f} ms by docker-py; allowed: {1.3 * bare * 1000 + 5:.1f} ms"
            )
            lines.append(f"sandbox.get: {_median(caller) * 1000:.1f} ms")
            caller.close()
            before = resident_mib(daemon)
            seconds, errors = asyncio.run(_many(daemon))
            grown = resident_mib(daemon) - before
            first_ones = sorted(set(errors))[:3]
            lines.append(
                f"{CLIENTS} clients of {CALLS} calls: {len(errors)} errors {first_ones or ''}, {seconds:.1f} s,"
                f" {grown:+.0f} MiB (allowed 40)"
            )
            lines.append(f"`paddock mcp` to its end without a request: {_bridge(daemon):.2f} s")
    finally:
        engine.close()
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def _median(caller: Caller) -> float:
    times = []
    for _ in range(100):
        start = time.perf_counter()
        caller.request("tools/call", name="sandbox.get", arguments={"name": "exec"})
        times.append(time.perf_counter() - start)
    return sorted(times)[50]


async def _many(daemon: RunningDaemon) -> tuple[float, list[str]]:
    errors: list[str] = []

    async def one(era: str) -> None:
        async with client(daemon.socket, era) as created:
            for _ in range(CALLS):
                result = await created.call_tool(EXEC["name"], EXEC["arguments"])  # type: ignore[arg-type]
                errors.extend([str(result.content)] * result.is_error)

    start = time.perf_counter()
    await asyncio.gather(*(one(("2026-07-28", "legacy")[number % 2]) for number in range(CLIENTS)))
    return time.perf_counter() - start, errors


def _bridge(daemon: RunningDaemon) -> float:
    start = time.perf_counter()
    arguments = [sys.executable, "-m", "controller", "mcp"]
    subprocess.run(arguments, cwd=ROOT, env=daemon.environment, input=b"", capture_output=True, check=True)
    return time.perf_counter() - start
