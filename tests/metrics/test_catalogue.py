"""The catalogue is consistent in itself, and what is exported is in it, with the labels it says."""

import re
from collections import Counter

import pytest

from controller.kinds.observed.activity import Activity
from controller.metrics.catalogue import CATALOGUE, CONTAINERS, HOST, METER, MODELS, OBJECTS, POOLS, QUOTAS
from controller.metrics.catalogue.family import Family
from controller.metrics.collectors import collect
from controller.metrics.containers import FIGURES, NETWORK_FIGURES, ContainerCollector
from controller.metrics.host import HostCollector
from controller.metrics.meter import PrometheusMeter
from controller.metrics.objects import ObjectCollector
from controller.metrics.registry import new_registry
from tests.instance_states import instance_state
from tests.metrics.made_up import SPEC, MadeUpUsage, container, instance, layers, many, sandbox, snapshot
from tests.snapshots import changed_snapshot

SUFFIXES = ("_bucket", "_sum", "_count")
FOREIGN = ("process_", "python_gc_")


@pytest.mark.parametrize("family", CATALOGUE.values(), ids=CATALOGUE)
def test_a_family_keeps_the_rules(family: Family) -> None:
    assert re.fullmatch(r"paddock_[a-z0-9]+(_[a-z0-9]+)*", family.name)
    assert family.name.endswith("_total") == (family.type == "counter")
    assert family.base.endswith(family.unit), "a unit is part of the name"
    assert family.help.endswith("."), "help is a sentence"
    assert set(family.values) <= set(family.labels), "only labels it has can be closed"
    assert set(family.aliases) <= set(family.values), "words lead to values of a closed label"
    assert all(set(alias.values()) <= set(family.values[label]) for label, alias in family.aliases.items())
    assert bool(family.buckets) == (family.type == "histogram")
    assert list(family.buckets) == sorted(set(family.buckets))


def test_every_name_is_given_once() -> None:
    assert len(CATALOGUE) == len(METER + CONTAINERS + OBJECTS + POOLS + QUOTAS + MODELS + HOST)


def test_every_figure_of_a_container_is_in_the_catalogue() -> None:
    out_of_band = {
        "paddock_container_start_time_seconds",
        "paddock_container_spec_cpu_shares",
        "paddock_container_fs_usage_bytes",
        "paddock_container_fs_usage_measured_timestamp_seconds",
        "paddock_container_health_status",
        "paddock_container_info",
    }
    measured = {family.name for family in CONTAINERS if family.name.startswith("paddock_container_")}
    assert measured == set(FIGURES) | set(NETWORK_FIGURES) | out_of_band


def test_what_is_exported_agrees_with_the_catalogue() -> None:
    registry = new_registry("0.1.0")
    PrometheusMeter(registry)
    observed = many(2)
    registry.register(ContainerCollector(lambda: observed, MadeUpUsage(), layers=lambda: layers(observed), detail=True))
    registry.register(ObjectCollector(lambda: observed, detail=True))
    registry.register(HostCollector(lambda: observed))
    for metric in registry.collect():
        if metric.name.startswith(FOREIGN):
            continue
        family = CATALOGUE.get(metric.name) or CATALOGUE[metric.name + "_total"]
        assert (metric.type, metric.unit, metric.documentation) == (family.type, family.unit, family.help)
        for sample in metric.samples:
            labels = sample.labels.keys() - {"le"}
            assert labels == set(family.labels), family.name


def test_detail_is_off_by_default() -> None:
    observed = many(1)

    def names(*, detail: bool) -> set[str]:
        collector = ContainerCollector(lambda: observed, MadeUpUsage(), layers=lambda: layers(observed), detail=detail)
        return {sample.name for metric in collector.collect() for sample in metric.samples}

    extra = {family.name for family in CONTAINERS if family.detail} - {
        "paddock_container_spec_cpu_shares",
        "paddock_container_fs_limit_bytes",
    }
    assert names(detail=True) - names(detail=False) == extra


def test_a_sandbox_costs_at_most_60_series() -> None:
    """The worst case: every figure known, a network, every condition, disk and gpus, an end, being deleted, waiting.

    The conditions of an agent, of models and of a network come with those.
    """
    limits = {"cpu": "500m", "memory": "256Mi", "pids": 128, "disk": "1Gi", "gpus": 1}
    spec = {**SPEC, "resources": {"limits": limits}, "lifecycle": {"idleTimeoutSeconds": 600}}
    worst = sandbox("worst", spec, deleted_at=1.0)
    conditions = worst.obj.status["conditions"]
    features = ("AgentCallersEnforced", "ModelsReachable", "NetworkReady")
    conditions[:] = [condition for condition in conditions if condition["type"] not in features]
    conditions[1].update(status="False", reason="CrashLoopBackOff")
    observed = changed_snapshot(
        snapshot(worst, containers=[container(worst.obj)]), activity={worst.obj.uid: Activity(1.0)}
    )
    assert instance(worst.obj).state != instance_state()
    usage = ContainerCollector(lambda: observed, MadeUpUsage(), layers=lambda: layers(observed))
    collectors = usage, ObjectCollector(lambda: observed)
    samples = [sample for collector in collectors for metric in collector.collect() for sample in metric.samples]
    series = [sample for sample in samples if sample.labels.get("sandbox") == "worst"]
    assert 50 < len(series) <= 60


@pytest.mark.parametrize("detail", [False, True])
def test_500_sandboxes_keep_the_budget(detail: bool) -> None:
    """All series of a scrape: at most 60 a sandbox (100 with everything), and a few that there are once."""
    observed = many(500)
    registry = new_registry("0.1.0")
    PrometheusMeter(registry)
    collect(registry, lambda: observed, MadeUpUsage(), layers=lambda: layers(observed), detail=detail, labels=())
    samples = [
        (sample.name, tuple(sample.labels.items())) for metric in registry.collect() for sample in metric.samples
    ]
    per_box = Counter(dict(labels)["sandbox"] for _, labels in samples if "sandbox" in dict(labels))
    assert len(set(samples)) == len(samples), "no series twice"
    assert len(per_box) == 500
    assert max(per_box.values()) <= (100 if detail else 60)
    assert len(samples) - sum(per_box.values()) < 1500
