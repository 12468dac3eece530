"""Cost of rest: a resync of 200 settled sandboxes, the size of the daemon, the start of the command."""

import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from controller.app.memory import TRIM_SECONDS
from tests.daemon import ROOT, RunningDaemon, running, start_daemon, wait_for

pytestmark = pytest.mark.bench
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: rest-%d}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 16Mi, cpu: 10m, pids: 16}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def requests(daemon: RunningDaemon) -> dict[str, float]:
    """Calls to the engine so far, by operation, as the daemon's own metrics count them."""
    with urllib.request.urlopen(daemon.metrics_url(), timeout=60) as answer:
        text = answer.read().decode()
    matches = re.findall(r'^paddock_docker_requests_total\{operation="([^"]+)"\} (\S+)$', text, re.MULTILINE)
    return {operation: float(count) for operation, count in matches if float(count)}


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_a_resync_of_200_settled_sandboxes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path, PADDOCK_RESYNC_SECONDS="10") as daemon:
        daemon.apply("---".join(SANDBOX % index for index in range(200)))
        names = [f"sandbox/rest-{index}" for index in range(200)]
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=110s", *names)
        settled = wait_for("one resync has passed", lambda: requests(daemon))
        listed = settled.get("containers.list", 0)
        before = wait_for("the next one", lambda: (now := requests(daemon))["containers.list"] > listed and now)
        after = wait_for(
            "and the one after",
            lambda: (now := requests(daemon))["containers.list"] > before["containers.list"] and now,
        )
        calls = {name: after[name] - before.get(name, 0) for name in after if after[name] > before.get(name, 0)}
        with capsys.disabled():
            print(f"\none resync of 200 settled sandboxes: engine calls {calls}")
        writes = {name for name in calls if name not in ("containers.list", "networks.list", "ping", "info", "version")}
        assert not writes


@pytest.mark.docker
@pytest.mark.timeout(1800)
def test_500_sandboxes_at_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The processor that the daemon uses when nothing happens, over two resyncs; PADDOCK_BENCH_AT_REST: how many."""
    count = int(os.environ.get("PADDOCK_BENCH_AT_REST", "500"))
    with running(tmp_path) as daemon:
        daemon.apply("---".join(SANDBOX % index for index in range(count)))
        names = [f"sandbox/rest-{index}" for index in range(count)]
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=1000s", *names, seconds=1200)
        listed = requests(daemon)["containers.list"]
        wait_for("one resync has passed", lambda: requests(daemon)["containers.list"] > listed, 90)
        before, start = cpu_seconds(daemon), time.perf_counter()
        threading.Event().wait(2 * 30)  # nothing is waited for but time itself: two resyncs fall into it
        usage, spent = cpu_seconds(daemon) - before, time.perf_counter() - start
    with capsys.disabled():
        print(f"\n{count} sandboxes at rest: {100 * usage / spent:.2f} % of a core ({usage:.2f} s in {spent:.0f} s)")


def cpu_seconds(daemon: RunningDaemon) -> float:
    """User and system time of the daemon so far."""
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_daemon_with_1000_stored_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Suspended, on an engine that is not there: what is measured is what storing and planning them takes."""
    daemon = start_daemon(tmp_path, PADDOCK_DOCKER_HOST=f"unix://{tmp_path / 'none.sock'}")
    try:
        empty = resident_mib(daemon)
        suspended = SANDBOX.replace("spec:", "spec:\n  runState: Suspended")
        daemon.apply("---".join(suspended % index for index in range(1000)))
        wait_for(
            "all are looked at", lambda: daemon.condition("rest-999", "Ready").get("reason") == "EngineUnreachable"
        )
        daemon.paddock("get", "sandboxes", "-o", "json")
        full = resident_mib(daemon)
        threading.Event().wait(TRIM_SECONDS + 2)  # nothing is waited for but time itself
        later = resident_mib(daemon)
    finally:
        daemon.stop()
    with capsys.disabled():
        print(
            f"\nthe daemon's memory: {empty:.0f} MiB empty, {full:.0f} MiB with 1,000 objects, ratio"
            f" {full / empty:.2f}; {later:.0f} MiB after the next trim"
        )


def resident_mib(daemon: RunningDaemon) -> float:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    match = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert match
    return int(match[1]) / 1024


def test_the_start_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`paddock version` as a whole process, against the interpreter doing nothing."""

    def seconds(*command: str) -> float:
        times = []
        for _ in range(10):
            start = time.perf_counter()
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        return sorted(times)[len(times) // 2]

    base = seconds(sys.executable, "-c", "pass")
    ours = seconds(sys.executable, "-m", "controller", "version")
    with capsys.disabled():
        print(f"\npaddock version: {ours:.3f} s; python doing nothing: {base:.3f} s; ratio {ours / base:.1f}")
