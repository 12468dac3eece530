"""Costs of workflows: three stages against a shell script, the bridge against an exec, and many runs at once."""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker as docker_py
import pytest

from controller.cli.calls.workflows import WorkflowRuns
from paddock._client.connection import Connection, connect
from tests.daemon import RunningDaemon, running

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(600)]
ROUNDS, AT_ONCE = 10, 50
IMAGE = "paddock/test-tiny:1"
OBJECTS = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t}
spec:
  image: "paddock/test-tiny:1"
  command: ["sleep", "1000000"]
  resources: {limits: {memory: 32Mi, cpu: "1", pids: 32}}
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: bridge}
spec: {templateRef: {name: t}, poolPolicy: Never}
---
apiVersion: paddock/v1alpha1
kind: Workflow
metadata: {name: three}
spec:
  sandbox: {templateRef: {name: t}, lifecycle: {shutdownGracePeriodSeconds: 0}}
  stages:
  - {name: a, exec: {commands: ["true"]}}
  - {name: b, exec: {commands: ["true"]}}
  - {name: c, exec: {commands: ["true"]}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: t}, warmReplicas: 3}
"""
SCRIPT = (
    f"id=$(docker create --network none {IMAGE} sleep 1000000) && docker start $id >/dev/null && "
    "for n in 1 2 3; do docker exec $id sh -ec true || exit 1; done; docker rm -f $id >/dev/null"
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("bench")) as created:
        created.apply(OBJECTS)
        created.paddock("wait", "--for=condition=Ready", "--timeout=120s", "sandbox/bridge", "sandboxpool/warm")
        yield created


@pytest.fixture
def api(daemon: RunningDaemon) -> Iterator[Connection]:
    connection = connect(f"unix://{daemon.socket}")
    yield connection
    connection.close()


def median(rounds: int, *each: Callable[[], object]) -> list[float]:
    """The medians of the seconds that each takes, by turns, so that all meet the same load."""
    took: list[list[float]] = [[] for _ in each]
    for _ in range(rounds):
        for times, do in zip(took, each, strict=True):
            start = time.perf_counter()
            do()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in took]


def finished(runs: WorkflowRuns, name: str) -> None:
    runs.create(name, {"workflowRef": {"name": "three"}})
    while runs.get(name)["status"].get("phase") != "Succeeded":
        time.sleep(0.01)


def test_three_stages_in_a_warm_sandbox(api: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    runs, names = WorkflowRuns(api, "default"), iter(range(1000))
    ours, bare = median(
        ROUNDS,
        lambda: finished(runs, f"warm-{next(names)}"),
        lambda: subprocess.run(["sh", "-c", SCRIPT], check=True),
    )
    with capsys.disabled():
        print(f"\nthree stages: {ours:.2f} s, a script: {bare:.2f} s; ratio {ours / bare:.2f}; allowed: 1.5")


def test_bridge_beside_exec(api: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    path = "namespaces/default/sandboxes/bridge"
    bridge, plain = median(
        3 * ROUNDS,
        lambda: api.request("POST", f"{path}/run", json={"command": ["true"]}),
        lambda: api.request("POST", f"{path}/exec", json={"command": ["true"]}),
    )
    further = (bridge - plain) * 1000
    with capsys.disabled():
        print(f"\nbridge: {bridge * 1000:.0f} ms, exec: {plain * 1000:.0f} ms; {further:.0f} ms more; allowed: 40 ms")


def test_plugin_of_ten_objects(api: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    template = {"image": IMAGE, "command": ["sleep", "1000000"]}
    took = []
    for number in range(ROUNDS):
        objects = [
            {"kind": "SandboxTemplate", "metadata": {"name": f"p{number}-{index}"}, "spec": template}
            for index in range(10)
        ]
        spec = {"version": "1.0", "type": "Tool", "objects": objects}
        document = {
            "apiVersion": "paddock/v1alpha1",
            "kind": "Plugin",
            "metadata": {"name": f"p{number}"},
            "spec": spec,
        }
        start = time.perf_counter()
        documents = [{"file": "p", "text": json.dumps(document)}]
        api.request("POST", "apply", json={"documents": documents, "namespace": "default"})
        while not _is_ready(api.get(f"namespaces/default/plugins/p{number}")):
            time.sleep(0.01)
        took.append(time.perf_counter() - start)
    with capsys.disabled():
        print(f"\na plugin of 10 objects is Ready after {statistics.median(took):.2f} s; allowed: 1 s")


def _is_ready(obj: Any) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def test_many_runs_at_once(api: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=300, max_pool_size=16)

    def one(_number: int) -> None:
        sandbox = client.containers.create(IMAGE, ["sleep", "1000000"], network_mode="none", mem_limit=32 << 20)
        try:
            sandbox.start()
            for _ in range(3):
                assert sandbox.exec_run(["sh", "-ec", "true"]).exit_code == 0
        finally:
            sandbox.remove(force=True)

    start = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(AT_ONCE)))
    bare = time.perf_counter() - start
    client.close()
    runs = WorkflowRuns(api, "default")
    started_at = time.perf_counter()
    for number in range(AT_ONCE):
        runs.create(f"many-{number}", {"workflowRef": {"name": "three"}})
    for number in range(AT_ONCE):  # one at a time: asking for all of them over and over would be a load of its own
        while runs.get(f"many-{number}")["status"].get("phase") != "Succeeded":
            time.sleep(0.05)
    ours = time.perf_counter() - started_at
    with capsys.disabled():
        print(f"\n{AT_ONCE} runs: {ours:.1f} s, docker-py: {bare:.1f} s; ratio {ours / bare:.2f}; allowed: 1.3")
