"""Thresholds with a gap between them."""

import pytest

from controller.policy.host.health import CLEAR, NEAR, SAMPLES_NEEDED, WELL, Health, ThresholdCrossing, judge


def alarms(resource: str, *shares: float | None) -> list[bool]:
    """Return the crossings of one resource, sample by sample: near (True), or recovered (False)."""
    health, observed = WELL, []
    for share in shares:
        health, crossed = judge(health, {resource: share})
        assert {threshold_crossing.resource for threshold_crossing in crossed} <= {resource}
        observed += [threshold_crossing.near for threshold_crossing in crossed]
    return observed


@pytest.mark.parametrize("resource", ["memory", "pids", "disk"])
def test_crossings_are_reported_once(resource: str) -> None:
    assert alarms(resource, 0.5, 0.95, 0.99, 0.95, 0.5, 0.4) == [True, False]


def test_between_the_thresholds_nothing_changes() -> None:
    between = (NEAR + CLEAR) / 2
    assert alarms("memory", between, between) == []
    assert alarms("memory", NEAR, between, NEAR, between, NEAR) == [True]
    assert alarms("memory", NEAR, CLEAR, CLEAR - 0.001, between) == [True, False]


def test_short_cpu_peaks_are_ignored() -> None:
    assert alarms("cpu", *[1.0] * (SAMPLES_NEEDED["cpu"] - 1), 0.1, 1.0) == []
    assert alarms("cpu", *[1.0] * SAMPLES_NEEDED["cpu"]) == [True]


def test_unknown_values_change_nothing() -> None:
    assert alarms("memory", 0.95, None, None, 0.95) == [True]
    assert alarms("cpu", 1.0, 1.0, 1.0, None, 1.0) == [True]
    assert judge(Health(frozenset({"pids"})), {}) == (Health(frozenset({"pids"})), ())


def test_resources_are_judged_apart() -> None:
    health, crossed = judge(WELL, {"memory": 0.95, "pids": 0.1, "disk": 0.91})
    assert crossed == (ThresholdCrossing("memory", near=True), ThresholdCrossing("disk", near=True))
    assert health.near == {"memory", "disk"}
