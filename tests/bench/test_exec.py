"""Cost of a command through Paddock over the same command through bare docker-py."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import docker as docker_py
import pytest

from tests.daemon import running
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker]
ROUNDS = 40
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: exec}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi, cpu: "2"}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def test_exec_of_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    try:
        with running(tmp_path) as daemon, Paddock(f"unix://{daemon.socket}") as paddock:
            daemon.apply(SANDBOX)
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/exec")
            sandbox = paddock.sandbox("exec")
            container = client.containers.get(daemon.get("exec")["status"]["instanceRef"]["name"])
            ours, bare = alternately(
                lambda: sandbox.exec(["true"]).exit_code, lambda: container.exec_run(["true"], demux=True).exit_code
            )
    finally:
        client.close()
    with capsys.disabled():
        print(
            f"\nexec of true, p50 of {ROUNDS}: {ours * 1000:.1f} ms by Paddock, {bare * 1000:.1f} ms by docker-py; "
            f"ratio {ours / bare:.2f}; allowed: 1.3 and 5 ms, {1.3 * bare * 1000 + 5:.1f} ms"
        )


def alternately(*runs: Callable[[], int | None]) -> list[float]:
    """The medians of the seconds that each takes, by turns, so that both meet the same load."""
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for times, run in zip(took, runs, strict=True):
            start = time.perf_counter()
            assert run() == 0
            times.append(time.perf_counter() - start)
    return [statistics.median(group) for group in took]
