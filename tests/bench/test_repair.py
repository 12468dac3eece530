"""Time until a sandbox that was killed, or removed, by hand runs again; against the bare engine."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import docker as docker_py
import pytest

from tests.daemon import RunningDaemon, running

pytestmark = [pytest.mark.bench, pytest.mark.docker]
ROUNDS = 8
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: repaired-%d}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def bare(client: docker_py.DockerClient) -> float:
    """Seconds to create and start one container without network, by docker-py."""
    host = client.api.create_host_config(network_mode="none", mem_limit=64 << 20, init=True)
    start = time.perf_counter()
    container = client.api.create_container("paddock/test-tiny:1", command=["sleep", "1000000"], host_config=host)
    client.api.start(container["Id"])
    spent = time.perf_counter() - start
    client.api.remove_container(container["Id"], force=True)
    return spent


def until(true: Callable[[], bool], seconds: float = 60.0) -> float:
    """Seconds until it is so."""
    start = time.perf_counter()
    while not true():
        assert time.perf_counter() - start < seconds
    return time.perf_counter() - start


def test_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    killed, removed, created = [], [], []

    def held(name: str) -> list[dict[str, str]]:
        return list(client.api.containers(filters={"label": [f"paddock.name={name}", own_text]}))

    def back(name: str, other_than: str = "") -> bool:
        return any(document["Id"] != other_than for document in held(name))

    try:
        with running(tmp_path) as daemon:
            own_text = f"paddock.instance={daemon.instance_id()}"
            for index in range(ROUNDS):
                name = f"repaired-{index}"
                apply_and_wait(daemon, index)
                (first,) = held(name)
                client.api.kill(first["Id"])
                killed.append(until(lambda name=name: back(name)))
                until(lambda name=name: back(name))
                client.api.remove_container(first["Id"], force=True)
                removed.append(until(lambda name=name, first=first: back(name, first["Id"])))
                created.append(bare(client))
    finally:
        client.close()
    base = statistics.median(created)
    with capsys.disabled():
        for what, times in (("killed", killed), ("removed", removed)):
            median, worst = statistics.median(times), max(times)
            print(
                f"\na {what} box runs again: median {median * 1000:.0f} ms, worst {worst * 1000:.0f} ms; "
                f"bare create and start {base * 1000:.0f} ms; ratio {median / base:.2f}"
            )


def apply_and_wait(daemon: RunningDaemon, index: int) -> None:
    daemon.apply(SANDBOX % index)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/repaired-{index}")
