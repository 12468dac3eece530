"""One failing collector costs its own figures and nothing else."""

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import Gauge, Metric
from prometheus_client.registry import DuplicateTimeseries

from controller.metrics.containers import ContainerCollector
from controller.metrics.objects import ObjectCollector
from controller.metrics.registry import Registry, new_registry
from tests.metrics.made_up import MadeUpUsage, many


class Broken:
    """Fails in the middle, as long as it is told to."""

    fails = True

    def describe(self) -> list[Metric]:
        return [Metric("broken", "Broken.", "gauge")]

    def collect(self) -> Iterator[Metric]:
        yield Metric("broken", "Broken.", "gauge")
        if self.fails:
            raise RuntimeError("no such luck")


def names(registry: Registry) -> set[str]:
    return {metric.name for metric in registry.collect()}


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_the_rest_is_still_collected(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    registry.register(Broken())
    Gauge("fine", "Fine.", registry=registry)
    with caplog.at_level(logging.ERROR, "paddock.metrics"):
        assert "fine" in names(registry)
        assert "broken" not in names(registry), "a collector's families come whole or not at all"
    assert registry.get_sample_value("paddock_metrics_errors_total", {"reason": "collector"}) == 2
    assert ["Broken" in record.getMessage() for record in caplog.records] == [True], "said once"


def test_it_comes_back_when_it_works_again(registry: Registry) -> None:
    broken = Broken()
    registry.register(broken)
    assert "broken" not in names(registry)
    broken.fails = False
    assert "broken" in names(registry)


def test_a_restricted_look_is_guarded_too(registry: Registry) -> None:
    registry.register(Broken())
    assert list(registry.restricted_registry(["broken"]).collect()) == []


def test_a_broken_usage_reader_leaves_the_objects(registry: Registry) -> None:
    class BrokenUsage(MadeUpUsage):
        def read(self, containers: object) -> dict:
            raise OSError("the cgroups are gone")

    snapshot = many(1)
    registry.register(ContainerCollector(lambda: snapshot, BrokenUsage()))
    registry.register(ObjectCollector(lambda: snapshot))
    observed = names(registry)
    assert "paddock_sandbox_status_ready" in observed
    assert "paddock_container_pids" not in observed


def test_names_still_clash_and_can_be_taken_back(registry: Registry) -> None:
    first = Broken()
    registry.register(first)
    with pytest.raises(DuplicateTimeseries):
        registry.register(Broken())
    registry.unregister(first)
    registry.register(Broken())


def test_build_and_process_are_told() -> None:
    registry = new_registry("0.1.0", "abc123")
    observed = names(registry)
    assert {"process_resident_memory_bytes", "python_gc_collections", "paddock_build_info"} <= observed
    build = next(metric for metric in registry.collect() if metric.name == "paddock_build_info").samples[0]
    assert (build.labels["version"], build.labels["revision"], build.value) == ("0.1.0", "abc123", 1)
