"""Cost of a scrape of 500 made-up sandboxes, beside bare prometheus_client Gauges with as many samples."""

import time
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest as library_open_metrics

from controller.metrics.containers import ContainerCollector
from controller.metrics.objects import ObjectCollector
from controller.metrics.pages import Pages
from controller.metrics.registry import Registry
from controller.metrics.render import open_metrics
from tests.metrics.made_up import MadeUpUsage, many

COUNT = 500
LIMIT_MS = 0.1  # without reading files, see test_scrape_files.py


@pytest.mark.bench
@pytest.mark.parametrize("detail", [False, True], ids=["default", "detail"])
def test_scrape_of_500_sandboxes(detail: bool) -> None:
    registry = _ours(detail)
    lines = open_metrics(registry).count(b"\n") - 3 * sum(1 for _ in registry.collect())
    ours = _best(lambda: open_metrics(registry))
    gzipped = _best(lambda: whole_answer(registry))
    bare_registry = _bare(lines)
    bare = _best(lambda: library_open_metrics(bare_registry), times=3)
    number = gzipped * 1000 / COUNT
    print(
        f"\nscrape of {COUNT} sandboxes, {lines / COUNT:.0f} series each: {ours * 1000:.0f} ms of CPU,"
        f" {ours * 1000 / COUNT:.3f} each, with gzip {number:.3f} (wanted {LIMIT_MS}); {lines} bare Gauges:"
        f" {bare * 1000:.0f} ms; ratio {ours / bare:.2f}"
    )
    assert number <= LIMIT_MS * (1 + detail)


def _ours(detail: bool) -> Registry:
    snapshot = many(COUNT)
    registry = Registry()
    registry.register(ContainerCollector(lambda: snapshot, MadeUpUsage(), detail=detail))
    registry.register(ObjectCollector(lambda: snapshot))
    return registry


def whole_answer(registry: Registry) -> None:
    """Answer Prometheus, which asks for gzip."""
    answer = Pages(registry).answer(
        "/metrics", {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}
    )
    assert answer.status == 200


def _bare(samples: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    per_family = COUNT
    for number in range(samples // per_family):
        gauge = Gauge(
            f"bare_container_figure_number_{number}_bytes",
            "A figure.",
            ("namespace", "sandbox", "container"),
            registry=registry,
        )
        for index in range(per_family):
            gauge.labels("default", f"box-{index:04d}", f"pdk-box-{index:04d}-0123abcd").set(index * 4096)
    return registry


def _best(work: Callable[[], object], times: int = 7) -> float:
    """Seconds of CPU of the quickest run: one thread that never waits, so on a quiet machine that is what passes."""
    took = []
    for _ in range(times):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return min(took)
