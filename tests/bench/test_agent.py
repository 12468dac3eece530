"""Savings by the agent in a sandbox: calls through the daemon against docker-py's exec, in the same run."""

import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker as docker_py
import httpx
import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(600)]
ROUNDS, COLD_STARTS, REST_SECONDS = 60, 8, 20
CLIENTS, CALLS, SANDBOXES = 20, 20, 10
TEMPLATE = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: agent}
spec:
  image: paddock/test-tiny:1
  command: ["sleep", "1000000"]
  agent: {}
  tmpfs: [{mountPath: /workspace, size: 16Mi}]
  resources: {limits: {memory: 64Mi, cpu: "1"}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: agent}
spec: {templateRef: {name: agent}, warmReplicas: 3, maxReplicas: 20}
"""
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  templateRef: {name: agent}
  poolPolicy: %s
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def client(daemon: RunningDaemon) -> httpx.Client:
    base = "http://paddock/apis/paddock/v1alpha1/namespaces/default"
    return httpx.Client(base_url=base, transport=httpx.HTTPTransport(uds=str(daemon.socket), verify=False), timeout=60)


def call(http: httpx.Client, sandbox: str, tool: str, **parameters: object) -> float:
    """Call a tool; return the seconds that it took."""
    start = time.perf_counter()
    answer = http.post(f"/sandboxes/{sandbox}/mcp/execute", json={"tool": tool, "parameters": parameters})
    assert answer.status_code == 200, answer.text
    assert answer.json()["success"], answer.text
    return time.perf_counter() - start


def test_calls_of_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    lines = []
    try:
        with running(tmp_path) as daemon, Paddock(f"unix://{daemon.socket}") as paddock, client(daemon) as http:
            daemon.apply(TEMPLATE)
            daemon.apply(SANDBOX % ("one", "Never"))
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/one")
            container = engine.containers.get(daemon.get("one")["status"]["instanceRef"]["name"])
            call(http, "one", "file.write", path="file", content="x" * 1024)
            files = paddock.sandbox("one").files
            ours, plain, read, file, bare = alternately(
                lambda: call(http, "one", "exec", command=["true"]),
                lambda: timed(lambda: http.post("/sandboxes/one/exec", json={"command": ["true"]}).raise_for_status()),
                lambda: call(http, "one", "file.read", path="file"),
                lambda: timed(lambda: files.read("/workspace/file")),
                lambda: timed(lambda: container.exec_run(["true"], demux=True)),
            )
            for what, seconds, permitted in (
                ("exec of true by mcp/execute", ours, 10),
                ("exec of true by exec", plain, 10),
                ("file.read of 1 KiB", read, 4),
                ("a file of 1 KiB by the client, which uses no agent", file, 10),
            ):
                lines.append(f"{what}: {shown(seconds)}; {median(seconds) / median(bare):.2f} of docker-py's exec; ")
                lines[-1] += f"allowed: p50 {permitted} ms, 0.2"
            lines.append(f"docker-py's exec of true: {shown(bare)}")
            lines.append(at_rest(str(container.name)))
            lines.append(cold_starts(daemon))
            lines.append(f"warm claim to first result: {shown(claims(daemon, paddock, http))}; allowed: p50 50 ms")
            lines.append(f"{CLIENTS} clients x {CALLS} calls, {SANDBOXES} sandboxes: {shown(crowd(daemon))}")
            lines[-1] += "; allowed: p99 300 ms"
    finally:
        engine.close()
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def at_rest(container: str) -> str:
    """Say what the agent takes of memory, and how often it wakes, once nobody calls it."""
    lines = (line.split() for line in docker("top", container, "-eo", "pid,args").splitlines())
    (pid,) = [line[0] for line in lines if line[1].startswith("/.paddock/")]
    status = Path(f"/proc/{pid}/status")
    wait_for("its idle connections are closed", lambda: "2134" not in connected(pid), 120)
    before = numbers(status.read_text())
    threading.Event().wait(REST_SECONDS)
    after = numbers(status.read_text())
    woken = sum(after[name] - before[name] for name in after if name.endswith("ctxt_switches"))
    mebibytes = after["RssAnon"] / 1024
    return f"agent at rest: {mebibytes:.1f} MiB (allowed 6), {woken} wake-ups in {REST_SECONDS} s (allowed 0)"


def connected(pid: str) -> str:
    """Return the kernel's table of established TCP connections of a process's network."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()
    return "\n".join(line for line in lines if line.split()[3] == "01")


def numbers(status: str) -> dict[str, int]:
    pairs = (line.split(":") for line in status.splitlines())
    return {name: int(value.split()[0]) for name, value in pairs if value.split()[:1] and value.split()[0].isdigit()}


def cold_starts(daemon: RunningDaemon) -> str:
    """Say how much longer a cold sandbox with an agent takes until it is Ready."""
    took: dict[bool, list[float]] = {True: [], False: []}
    template = TEMPLATE.partition("---")[0].replace("name: agent", "name: bare").replace("agent: {}", "env: []")
    daemon.apply(template)
    for number in range(COLD_STARTS):
        for with_agent in (True, False):
            name = f"cold-{number}-{'agent' if with_agent else 'bare'}"
            text = SANDBOX % (name, "Never")
            start = time.perf_counter()
            daemon.apply(text if with_agent else text.replace("{name: agent}", "{name: bare}"))
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")
            took[with_agent].append(time.perf_counter() - start)
            daemon.paddock("delete", f"sandbox/{name}", "--timeout=60s")
    further = (median(took[True]) - median(took[False])) * 1000
    both = f"{shown(took[True])}; without an agent {shown(took[False])}"
    return f"cold start until Ready: {both}; {further:+.0f} ms (allowed +150)"


def claims(daemon: RunningDaemon, paddock: Paddock, http: httpx.Client) -> list[float]:
    """Seconds from a claim on a warm pool to the first result of a tool."""
    took = []
    for number in range(10):
        wait_for(
            "the pool is full", lambda: paddock.get("sandboxpools", "agent")["status"].get("readyReplicas", 0) >= 3, 60
        )
        name = f"claim-{number}"
        spec = {"templateRef": {"name": "agent"}, "poolPolicy": "Require"}
        body = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec}
        start = time.perf_counter()
        http.post("/sandboxes", json=body).raise_for_status()
        call(http, name, "exec", command=["true"])
        took.append(time.perf_counter() - start)
        http.delete(f"/sandboxes/{name}").raise_for_status()
    return took


def crowd(daemon: RunningDaemon) -> list[float]:
    """Seconds of each call of many clients at a time."""
    names = [f"crowd-{number}" for number in range(SANDBOXES)]
    daemon.apply("---".join(SANDBOX % (name, "Never") for name in names))
    for name in names:
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=120s", f"sandbox/{name}")

    def one(number: int) -> list[float]:
        with client(daemon) as http:
            return [call(http, names[(number + index) % SANDBOXES], "exec", command=["true"]) for index in range(CALLS)]

    with ThreadPoolExecutor(CLIENTS) as threads:
        return [seconds for observed in threads.map(one, range(CLIENTS)) for seconds in observed]


def timed(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


def alternately(*runs: Callable[[], float]) -> list[list[float]]:
    """The seconds that each takes, by turns, so that all meet the same load."""
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for times, run in zip(took, runs, strict=True):
            times.append(run())
    return took


def median(seconds: list[float]) -> float:
    return statistics.median(seconds)


def shown(seconds: list[float]) -> str:
    last = sorted(seconds)[max(0, int(len(seconds) * 0.99) - 1)]
    return f"p50 {median(seconds) * 1000:.1f} ms, p99 {last * 1000:.1f} ms"
