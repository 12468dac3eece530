"""Counts of other packages are published; their mistakes are logged, and cost them nothing."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.metrics.catalogue import CATALOGUE
from controller.metrics.meter import MAX_SERIES, Misuse, PrometheusMeter
from controller.metrics.registry import Registry


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def meter(registry: Registry) -> PrometheusMeter:
    return PrometheusMeter(registry, strict=True)


def test_counts_times_and_sets(registry: Registry, meter: PrometheusMeter) -> None:
    meter.count("paddock_workqueue_adds_total", queue="sandbox")
    meter.count("paddock_workqueue_adds_total", 2, queue="sandbox")
    meter.observe("paddock_reconcile_duration_seconds", 0.003, controller="sandbox")
    meter.gauge("paddock_workqueue_depth", 4, queue="sandbox")
    value = registry.get_sample_value
    assert value("paddock_workqueue_adds_total", {"queue": "sandbox"}) == 3
    assert value("paddock_reconcile_duration_seconds_sum", {"controller": "sandbox"}) == 0.003
    assert value("paddock_reconcile_duration_seconds_bucket", {"controller": "sandbox", "le": "0.0025"}) == 0
    assert value("paddock_reconcile_duration_seconds_bucket", {"controller": "sandbox", "le": "0.005"}) == 1
    assert value("paddock_workqueue_depth", {"queue": "sandbox"}) == 4


def test_order_of_labels_does_not_matter(registry: Registry, meter: PrometheusMeter) -> None:
    meter.count("paddock_reconcile_total", controller="sandbox", result="error")
    meter.count("paddock_reconcile_total", result="error", controller="sandbox")
    assert registry.get_sample_value("paddock_reconcile_total", {"controller": "sandbox", "result": "error"}) == 2


def test_closed_enums_are_there_at_0(registry: Registry, meter: PrometheusMeter) -> None:
    value = registry.get_sample_value
    for result in CATALOGUE["paddock_reconcile_total"].values["result"]:
        assert value("paddock_reconcile_total", {"controller": "sandbox", "result": result}) == 0
    assert value("paddock_reconcile_action_errors_total", {"action": "pull", "reason": "no_space"}) == 0
    assert value("paddock_convergence_duration_seconds_count", {"operation": "create"}) == 0
    assert value("paddock_api_streams", {"kind": "exec"}) == 0


def test_a_gauge_is_absent_until_it_is_set(registry: Registry, meter: PrometheusMeter) -> None:
    name = "paddock_reconcile_last_full_sync_timestamp_seconds"
    assert registry.get_sample_value(name) is None
    meter.gauge(name, 1_700_000_000)
    assert registry.get_sample_value(name) == 1_700_000_000
    assert registry.get_sample_value("paddock_api_requests_in_flight") == 0, "this one is 0 before the first request"


def test_a_watched_gauge_is_read_at_each_scrape(registry: Registry, meter: PrometheusMeter) -> None:
    ages = [1.0, 2.0]
    meter.watch("paddock_workqueue_unfinished_work_seconds", lambda: sum(ages), queue="sandbox")
    assert registry.get_sample_value("paddock_workqueue_unfinished_work_seconds", {"queue": "sandbox"}) == 3
    ages.append(3.0)
    assert registry.get_sample_value("paddock_workqueue_unfinished_work_seconds", {"queue": "sandbox"}) == 6


def test_a_value_outside_a_closed_list_is_other(registry: Registry, meter: PrometheusMeter) -> None:
    meter.count("paddock_docker_events_total", action="exec_create: sh -c 'echo secret'")
    assert registry.get_sample_value("paddock_docker_events_total", {"action": "other"}) == 1


@pytest.mark.parametrize(
    ("word", "exported"),
    [("ImageMissing", "image"), ("EngineUnreachable", "docker_down"), ("timeout", "timeout"), ("Surprise", "other")],
)
def test_a_rooms_own_word_is_exported_as_the_catalogues(
    registry: Registry, meter: PrometheusMeter, word: str, exported: str
) -> None:
    meter.count("paddock_reconcile_action_errors_total", action="create", reason=word)
    document = {"action": "create", "reason": exported}
    assert registry.get_sample_value("paddock_reconcile_action_errors_total", document) == 1


def test_series_of_an_open_label_are_bounded(registry: Registry, meter: PrometheusMeter) -> None:
    for number in range(MAX_SERIES + 50):
        meter.count("paddock_docker_requests_total", operation=f"call-{number}")
    meter.count("paddock_docker_requests_total", operation="call-0")
    value = registry.get_sample_value
    assert value("paddock_docker_requests_total", {"operation": "other"}) == 50
    assert value("paddock_docker_requests_total", {"operation": "call-0"}) == 2
    assert value("paddock_docker_requests_total", {"operation": f"call-{MAX_SERIES}"}) is None


def test_long_values_are_cut(registry: Registry, meter: PrometheusMeter) -> None:
    meter.count("paddock_docker_requests_total", operation="x" * 5000)
    assert registry.get_sample_value("paddock_docker_requests_total", {"operation": "x" * 128}) == 1


MISTAKES = [
    ("count", "paddock_no_such_thing_total", 1, {}, "unknown_name"),
    ("count", "paddock_workqueue_depth", 1, {"queue": "q"}, "wrong_type"),
    ("observe", "paddock_workqueue_adds_total", 1, {"queue": "q"}, "wrong_type"),
    ("gauge", "paddock_workqueue_depth", 1, {}, "wrong_labels"),
    ("gauge", "paddock_workqueue_depth", 1, {"quue": "q"}, "wrong_labels"),
    ("gauge", "paddock_workqueue_depth", 1, {"queue": "q", "host": "h"}, "wrong_labels"),
    ("gauge", "paddock_workqueue_depth", float("nan"), {"queue": "q"}, "bad_value"),
    ("count", "paddock_workqueue_adds_total", -1, {"queue": "q"}, "bad_value"),
    ("count", "paddock_build_info", 1, {}, "unknown_name"),
]


@pytest.mark.parametrize(("verb", "name", "amount", "labels", "reason"), MISTAKES)
def test_a_mistake_is_raised_in_tests(
    meter: PrometheusMeter, verb: str, name: str, amount: float, labels: dict[str, str], reason: str
) -> None:
    with pytest.raises((Misuse, ValueError)):
        getattr(meter, verb)(name, amount, **labels)


@pytest.mark.parametrize(("verb", "name", "amount", "labels", "reason"), MISTAKES)
def test_a_mistake_is_counted_and_said_once_at_run_time(
    registry: Registry,
    caplog: pytest.LogCaptureFixture,
    verb: str,
    name: str,
    amount: float,
    labels: dict[str, str],
    reason: str,
) -> None:
    meter = PrometheusMeter(registry)
    with caplog.at_level(logging.ERROR, "paddock.metrics"):
        getattr(meter, verb)(name, amount, **labels)
        getattr(meter, verb)(name, amount, **labels)
    assert registry.get_sample_value("paddock_metrics_errors_total", {"reason": reason}) == 2
    assert [name in record.getMessage() for record in caplog.records] == [True]


def test_many_threads_lose_nothing(registry: Registry, meter: PrometheusMeter) -> None:
    def work(number: int) -> None:
        for _ in range(200):
            meter.count("paddock_docker_requests_total", operation=f"call-{number % 5}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(20)))
    total = sum(
        registry.get_sample_value("paddock_docker_requests_total", {"operation": f"call-{index}"}) or 0
        for index in range(5)
    )
    assert total == 20 * 200
