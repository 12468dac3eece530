"""50 sandboxes after an engine was restarted, against bare docker-py starting the same 50 containers again."""

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import docker as docker_py
import pytest

from tests.daemon import start_daemon, wait_for
from tests.lab.engine import PrivateEngine, private_engine

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(1200)]
COUNT, ROUNDS, THREADS = 50, 3, 4
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: lost-%d}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 16Mi, cpu: 50m, pids: 16}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def running(engine: PrivateEngine) -> int:
    return len(engine.docker("ps", "-q", check=False).split())


def restart(engine: PrivateEngine) -> None:
    """With it every container ends; it answers when this returns."""
    engine.end()
    engine.start()


@contextmanager
def talking(engine: PrivateEngine) -> Iterator[docker_py.APIClient]:
    client = docker_py.APIClient(base_url=engine.base_url, version="auto", timeout=600)
    try:
        yield client
    finally:
        client.close()


def until_all_run(client: docker_py.APIClient, since: float) -> None:
    """Told by the engine itself, so that looking takes nothing from what is timed. It remembers its last 256 events."""
    filters = {"type": "container", "event": "start"}
    events = client.events(since=f"{since:.9f}", filters=filters, decode=True)
    started: set[str] = set()
    for event in events:
        started.add(event["id"])
        if len(started) == COUNT:
            break
    events.close()


def ours(engine: PrivateEngine) -> float:
    """Seconds from the engine's first answer until the daemon, which was there all the time, has started them all."""
    with talking(engine) as client:
        since = time.time()
        restart(engine)
        start = time.perf_counter()
        until_all_run(client, since)
        return time.perf_counter() - start


def bare(engine: PrivateEngine) -> float:
    """Seconds that docker-py takes to start them all again, on as many threads as Paddock has workers."""
    with talking(engine) as client:
        since = time.time()
        restart(engine)
        start = time.perf_counter()
        ids = [container["Id"] for container in client.containers(all=True)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(client.start, ids))
        until_all_run(client, since)
        return time.perf_counter() - start


def test_recovery_of_50_after_a_restart_of_the_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, alone = [], []
    with private_engine() as engine:
        settings = {"PADDOCK_DOCKER_HOST": engine.base_url}
        daemon = start_daemon(tmp_path, **settings)
        try:
            daemon.apply("---".join(SANDBOX % index for index in range(COUNT)))
            wait_for("all run", lambda: running(engine) == COUNT, 600)
            for _ in range(ROUNDS):
                stored.append(ours(engine))
                daemon.stop()
                alone.append(bare(engine))
                daemon = start_daemon(tmp_path, **settings)
        finally:
            daemon.kill()
    base, median = statistics.median(alone), statistics.median(stored)
    with capsys.disabled():
        print(
            f"\n{COUNT} sandboxes after a restart of the engine: {median:.1f} s; bare docker-py starting them again: "
            f"{base:.1f} s; ratio {median / base:.2f} (medians of {ROUNDS})"
        )
