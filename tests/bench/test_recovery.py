"""50 sandboxes after an engine was restarted, against bare docker-py starting the same 50 containers again."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker as docker_py
import pytest

from tests.daemon import start_daemon, wait_for
from tests.lab.engine import PrivateEngine, private_engine

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(1200)]
COUNT, ROUNDS, THREADS = 50, 3, 4
BOX = """
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


def bare(engine: PrivateEngine) -> float:
    """Seconds that docker-py takes to start them all again, on as many threads as Paddock has workers."""
    client = docker_py.APIClient(base_url=engine.base_url, version="1.41", timeout=120)
    try:
        begun = time.perf_counter()
        ids = [each["Id"] for each in client.containers(all=True)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(client.start, ids))
        return time.perf_counter() - begun
    finally:
        client.close()


def test_recovery_of_50_after_a_restart_of_the_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, alone = [], []
    with private_engine() as engine:
        settings = {"PADDOCK_DOCKER_HOST": engine.base_url}
        daemon = start_daemon(tmp_path, **settings)
        try:
            daemon.apply("---".join(BOX % index for index in range(COUNT)))
            wait_for("all run", lambda: running(engine) == COUNT, 600)
            for _ in range(ROUNDS):
                restart(engine)
                begun = time.perf_counter()
                wait_for("all run again", lambda: running(engine) == COUNT, 600)
                kept.append(time.perf_counter() - begun)
                daemon.stop()
                restart(engine)
                alone.append(bare(engine))
                daemon = start_daemon(tmp_path, **settings)
        finally:
            daemon.kill()
    base, ours = statistics.median(alone), statistics.median(kept)
    with capsys.disabled():
        print(
            f"\n{COUNT} sandboxes after a restart of the engine: {ours:.1f} s; bare docker-py starting them again: "
            f"{base:.1f} s; ratio {ours / base:.2f} (medians of {ROUNDS})"
        )
