"""Fifty clients at once: two hundred sandboxes on the real engine until all are Ready, and how long a request takes."""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker as docker_py
import pytest

from tests.bench.test_cold import COUNT, bare
from tests.daemon import RunningDaemon, running, wait_for
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(900)]
CLIENTS, EACH = 50, 4
SANDBOX = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: load-%d-%d}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {cpu: 10m, memory: 8Mi, pids: 8}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def memory_mib(daemon: RunningDaemon) -> float:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) / 1024


def ready(paddock: Paddock) -> int:
    text = paddock.list("sandboxes")
    conditions = [it for document in text for it in document.get("status", {}).get("conditions", ())]
    return sum(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


def test_two_hundred_by_fifty_clients(tmp_path: Path) -> None:
    seconds: list[float] = []
    start = threading.Barrier(CLIENTS)

    def client(number: int) -> None:
        with Paddock(f"unix://{daemon.socket}") as paddock:
            start.wait()
            for count in range(EACH):
                started_at = time.perf_counter()
                paddock.apply(SANDBOX % (number, count))
                seconds.append(time.perf_counter() - started_at)

    with running(tmp_path) as daemon, Paddock(f"unix://{daemon.socket}") as paddock:
        before, started = memory_mib(daemon), time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(client, range(CLIENTS)))
        applied = time.perf_counter() - started
        wait_for("all are Ready", lambda: ready(paddock) == CLIENTS * EACH, 600)
        took, after = time.perf_counter() - started, memory_mib(daemon)
    engine = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    alone = bare(engine) / COUNT * CLIENTS * EACH
    engine.close()
    ordered = sorted(seconds)
    print(
        f"\n{CLIENTS * EACH} sandboxes by {CLIENTS} clients: applied in {applied:.1f} s (p50"
        f" {statistics.median(ordered) * 1000:.0f} ms, p99 {ordered[int(len(ordered) * 0.99) - 1] * 1000:.0f} ms),"
        f" all Ready in {took:.1f} s; bare docker-py: {alone:.1f} s; ratio {took / alone:.2f};"
        f" the daemon's memory {before:.0f} -> {after:.0f} MiB"
    )
    assert len(seconds) == CLIENTS * EACH
