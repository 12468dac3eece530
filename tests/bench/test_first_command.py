"""Time from a create to the first output of a command in it, of 1, 10 and 50 at once, beside docker-py by turns.

Cold, from a pool, and by docker-py, which creates, starts and runs the same command on as many threads: the figures
that makers of sandboxes publish. They are printed as a table for tests/README.md.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import docker as docker_py
import pytest

from tests.bench.test_claims import TEMPLATE, Eyes, eyes_on
from tests.bench.test_cold import IMAGE, confined
from tests.daemon import running
from tests.engine.test_engine_runtimes import engine_with_crun
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(1800)]
# Rounds of each number at once; PADDOCK_BENCH_AT_ONCE=10: fewer, for a busy machine.
ROUNDS = {1: 20, 10: 3, 50: 1} if os.environ.get("PADDOCK_BENCH_AT_ONCE") != "10" else {1: 5, 10: 1}
COMMAND = ["echo", "ready"]
PAIRS = int(os.environ.get("PADDOCK_BENCH_PAIRS", "40"))
# A bound of 50 m, as other figures have it, throttles the start itself.
LIMITS, NANO_CPUS = 'resources: {limits: {memory: 64Mi, cpu: "1", pids: 32}}', 1_000_000_000
# Of a pool of 50 and 50 beside it: two processors are promised 16 times, 32 in all.
SHARED_LIMITS, SHARED_NANO_CPUS = LIMITS.replace('"1"', "300m"), 300_000_000
SANDBOX = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec: {templateRef: {name: pool}, poolPolicy: %s, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""


@dataclass
class Bench:
    """The daemon's client, docker-py, and how many sandboxes and containers there were."""

    eyes: Eyes
    paddock: Paddock
    engine: docker_py.DockerClient
    count: int = 0
    containers: list[str] = field(default_factory=list)

    def cold(self) -> float:
        return self._paddock("Never")

    def warm(self) -> float:
        return self._paddock("Prefer")

    def bare(self) -> float:
        begun = time.perf_counter()
        container = self.engine.api.create_container(
            IMAGE, command=["sleep", "1000000"], user="20000:20000", host_config=confined(self.engine, SHARED_NANO_CPUS)
        )["Id"]
        self.containers.append(container)
        self.engine.api.start(container)
        command = self.engine.api.exec_create(container, COMMAND)
        output = self.engine.api.exec_start(command["Id"])
        assert output == b"ready\n", output
        return time.perf_counter() - begun

    def clear(self) -> None:
        """Remove all sandboxes and containers, and wait until the pool is full."""
        for sandbox in self.paddock.list("sandboxes"):
            self.paddock.delete("sandboxes", sandbox["metadata"]["name"])
        while self.containers:
            self.engine.api.remove_container(self.containers.pop(), force=True)
        while self.paddock.list("sandboxes"):
            threading.Event().wait(0.05)

    def _paddock(self, policy: str) -> float:
        self.count += 1
        name = f"first-{self.count}-{threading.get_ident() % 10_000}"
        begun = time.perf_counter()
        self.eyes.apply(SANDBOX % (name, policy))
        answer = self.paddock.sandbox(name).exec(COMMAND)
        assert answer.stdout == b"ready\n", answer
        return time.perf_counter() - begun


def at_once(count: int, start: Callable[[], float]) -> list[float]:
    """Return the seconds of each of so many at once."""
    together = threading.Barrier(count)

    def after_all(_: int) -> float:
        together.wait()
        return start()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(after_all, range(count)))


def test_time_to_first_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=120, max_pool_size=64)
    rows = []
    with (
        running(tmp_path) as daemon,
        Paddock(f"unix://{daemon.socket}") as paddock,
        eyes_on(daemon) as eyes,
    ):
        bench = Bench(eyes, paddock, engine)
        command = "[sleep, '1000000']"
        pool = {"name": "pool", "warm": max(ROUNDS), "command": command, "limits": SHARED_LIMITS, "more": ""}
        eyes.apply(TEMPLATE % pool)
        for count, rounds in ROUNDS.items():
            seconds: dict[str, list[float]] = {"cold": [], "warm": [], "bare": []}
            for _ in range(rounds):
                for kind, start in (("cold", bench.cold), ("warm", bench.warm), ("bare", bench.bare)):
                    eyes.fill("pool", max(ROUNDS))
                    seconds[kind] += at_once(count, start)
                    bench.clear()
            rows.append((count, seconds))
    engine.close()
    with capsys.disabled():
        print(f"\nload {os.getloadavg()[0]:.0f}")
        print("| at once | cold | warm | docker-py | cold over docker-py |\n|---|---|---|---|---|")
        for count, seconds in rows:
            middle = {kind: 1000 * statistics.median(spent) for kind, spent in seconds.items()}
            last = {kind: 1000 * max(spent) for kind, spent in seconds.items()}
            shown = " | ".join(f"{middle[kind]:.0f}, last {last[kind]:.0f} ms" for kind in seconds)
            print(f"| {count} | {shown} | {middle['cold'] / middle['bare']:.2f} |")


@pytest.mark.parametrize(("runtime", "scheme", "goal"), [("runc", "unix", 0.6), ("auto", "http+unix", 0.5)])
def test_pairs_of_cold_starts(
    runtime: str, scheme: str, goal: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`apply` to Ready at full-isolation, and docker-py's create and start by runc without a network, by turns.

    On an engine of its own, which has crun and sees no mount of cgroup v2 beside v1. crun gets no sandbox whose folders
    in memory this host holds: by that scheme the engine holds them, as for a daemon that is not root.
    """
    ours, theirs, used = [], [], ""
    with (
        engine_with_crun() as private,
        running(
            tmp_path,
            PADDOCK_DOCKER_HOST=private.base_url.replace("unix", scheme, 1),
            PADDOCK_DEFAULT_RUNTIME=runtime,
        ) as daemon,
        eyes_on(daemon) as eyes,
    ):
        engine = docker_py.DockerClient(base_url=private.base_url, timeout=60)
        pool = {"name": "cold", "warm": 0, "command": "[sleep, '1000000']", "limits": LIMITS, "more": ""}
        eyes.apply(TEMPLATE % pool)
        for turn in range(-1, PAIRS):  # the first one loads what is loaded once
            seconds = eyes.start(f"cold-{turn % 1000}", "cold", "Never")
            used = private.docker("inspect", "--format", "{{.HostConfig.Runtime}}", private.docker("ps", "-lq"))
            daemon.paddock("delete", "sandbox", f"cold-{turn % 1000}", "--timeout=60s")
            begun = time.perf_counter()
            container = engine.api.create_container(
                IMAGE, command=["sleep", "1000000"], user="20000:20000", host_config=confined(engine, NANO_CPUS)
            )["Id"]
            engine.api.start(container)
            theirs.append(time.perf_counter() - begun)
            ours.append(seconds)
            engine.api.remove_container(container, force=True)
        engine.close()
    ratios = [one / other for one, other in zip(ours[1:], theirs[1:], strict=True)]
    with capsys.disabled():
        print(
            f"\nfull-isolation by {used}, apply to Ready, {PAIRS} pairs: p50 {1000 * statistics.median(ours):.0f} ms;"
            f" docker-py, no network: {1000 * statistics.median(theirs):.0f} ms; median ratio"
            f" {statistics.median(ratios):.2f} (goal: {goal}); load {os.getloadavg()[0]:.0f}"
        )
