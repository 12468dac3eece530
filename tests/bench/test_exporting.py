"""Cost of being scraped: everything that a daemon exports, over HTTP, of 200 sandboxes at the usual interval."""

import http.client
import time
from pathlib import Path

import pytest

from controller.engine.usage.cgroup import CgroupUsage
from controller.kinds.observed.observed import Container
from controller.metrics.collectors import collect
from controller.metrics.meter import PrometheusMeter
from controller.metrics.registry import Registry, new_registry
from controller.metrics.server import MetricsServer
from tests.bench.test_scrape_files import fill
from tests.engine.test_engine_cgroups import V1, Host
from tests.metrics.made_up import container, layers, sandbox, snapshot

COUNT, INTERVAL_SECONDS, LIMIT = 200, 15, 0.015
ROUNDS = 20
# As Prometheus asks.
ASKED = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}


@pytest.mark.bench
def test_exporting_200_sandboxes(tmp_path: Path) -> None:
    """CPU of this process, which is the client as well: a little more than a daemon's."""
    host = Host(tmp_path, v1=tuple(V1), v2=False)
    sandboxes = [sandbox(f"box-{number:04d}") for number in range(COUNT)]
    containers: list[Container] = []
    for number, entry in enumerate(sandboxes):
        id_, pid = f"{number:064x}", 10_000 + number
        fill(host, id_, pid)
        containers.append(container(entry.obj, id=id_, pid=pid))
    usage, observed = CgroupUsage(host.cgroups), snapshot(*sandboxes, containers=containers)
    registry: Registry = new_registry("0.1.0")
    PrometheusMeter(registry)
    collect(registry, lambda: observed, usage, layers=lambda: layers(observed), detail=False, labels=())
    server = MetricsServer(registry, port=0)
    server.start()
    try:
        _scrape(server.port)  # it opens the folders
        start = time.process_time()
        sizes = [_scrape(server.port) for _ in range(ROUNDS)]
        cost = (time.process_time() - start) / ROUNDS
    finally:
        server.stop()
        usage.close()
    share = cost / INTERVAL_SECONDS
    print(
        f"\nexporting {COUNT} sandboxes: {cost * 1000:.0f} ms of CPU a scrape ({max(sizes) / 1024:.0f} KiB gzipped),"
        f" every {INTERVAL_SECONDS} s {share:.2%} of a core, at most {LIMIT:.1%}: ratio {share / LIMIT:.2f}"
    )
    assert share <= LIMIT


def _scrape(port: int) -> int:
    http_connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    http_connection.request("GET", "/metrics", headers=ASKED)
    answer = http_connection.getresponse()
    body = answer.read()
    http_connection.close()
    assert answer.status == 200
    return len(body)
