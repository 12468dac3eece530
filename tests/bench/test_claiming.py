"""Twenty clients that claim and delete for a minute: throughput, p99, and no errors, on each store."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.test_claims import at, eyes_on, make_pool
from tests.contract.store_backends import BACKENDS
from tests.daemon import running
from tests.postgres import store_settings
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(900)]
CLIENTS, WARM = 20, 20
SECONDS = float(os.environ.get("PADDOCK_BENCH_CLAIM_SECONDS", "60"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_twenty_clients_claim_and_delete(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warm where the pool has one, else cold: from applying each sandbox until it is seen Ready."""
    ready: list[float] = []
    started: list[float] = []
    together = threading.Barrier(CLIENTS, action=lambda: started.append(time.perf_counter()))

    def client(number: int) -> None:
        with Paddock(f"unix://{daemon.socket}") as paddock:
            together.wait()
            count = 0
            while time.perf_counter() < started[0] + SECONDS:
                name = f"claim-{number}-{count}"
                count += 1
                ready.append(eyes.start(name, "pool"))
                paddock.delete("sandboxes", name)

    with (
        store_settings(backend) as settings,
        running(tmp_path, **settings) as daemon,
        eyes_on(daemon) as eyes,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        make_pool(eyes, "pool", WARM)
        list(pool.map(client, range(CLIENTS)))  # an error of any client fails the test
        warm = sum(launch == "Warm" for launch in eyes.launches.values())
    with capsys.disabled():
        print(
            f"\n{backend}: {len(ready)} sandboxes by {CLIENTS} clients in {SECONDS:.0f} s,"
            f" {len(ready) / SECONDS:.1f}/s, {warm} of them warm, no errors;"
            f" Ready p50 {at(0.5, ready):.0f} ms, p99 {at(0.99, ready):.0f} ms"
        )
