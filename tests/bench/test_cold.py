"""40 cold sandboxes in one file until all are Ready, against bare docker-py creating and starting the same 40."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker as docker_py
import pytest

from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(900)]
COUNT, ROUNDS, THREADS = 40, 3, 4
IMAGE = "paddock/test-tiny:1"
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: cold-%d}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi, cpu: 50m, pids: 32}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def confined(client: docker_py.DockerClient, nano_cpus: int = 50_000_000) -> dict[str, Any]:
    """Return docker-py's host config of a container as confined as one of full-isolation."""
    return client.api.create_host_config(
        network_mode="none",
        mem_limit=64 << 20,
        memswap_limit=64 << 20,
        nano_cpus=nano_cpus,
        pids_limit=32,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        init=True,
        dns=["127.0.0.1"],
        tmpfs={"/tmp": "size=64m", "/workspace": "size=64m"},
        oom_score_adj=500,
        ipc_mode="private",
    )


def bare(client: docker_py.DockerClient) -> float:
    """Seconds that docker-py takes for as many containers of the same make, on as many threads."""

    def one(index: int) -> str:
        container = client.api.create_container(
            IMAGE,
            command=["sleep", "1000000"],
            user="20000:20000",
            host_config=confined(client),
            labels={"paddock.bench": "bare"},
        )
        client.api.start(container["Id"])
        return str(container["Id"])

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        ids = list(pool.map(one, range(COUNT)))
    spent = time.perf_counter() - start
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda each: client.api.remove_container(each, force=True), ids))
    return spent


def kept(daemon: RunningDaemon) -> float:
    """Seconds from the start of `paddock apply` until the store says that all are Ready."""
    text = "---".join(SANDBOX % index for index in range(COUNT))
    start = time.perf_counter()
    daemon.apply(text)
    names = [f"sandbox/cold-{index}" for index in range(COUNT)]
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=120s", *names)
    spent = time.perf_counter() - start
    daemon.paddock("delete", "sandboxes", "--all", "--timeout=120s")
    return spent


def test_cold_start_of_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    ratios = []
    try:
        with running(tmp_path) as daemon, capsys.disabled():
            print(f"\n{COUNT} cold sandboxes until Ready   paddock s   bare docker-py s   ratio")
            for _ in range(ROUNDS):
                ours, second = kept(daemon), bare(client)
                ratios.append(ours / second)
                print(f"{'':32}{ours:11.2f} {second:18.2f} {ratios[-1]:7.2f}")
            print(f"median ratio {sorted(ratios)[ROUNDS // 2]:.2f} (wanted: at most 1.15)")
            wait_for("nothing is left", lambda: "cold-" not in daemon.paddock("get", "sandboxes").stdout)
    finally:
        client.close()
