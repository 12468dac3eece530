"""Quota arithmetic on generated amounts."""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.quota import RESOURCES, Amount, HardLimits, HardQuota, PerSandbox, QuotaSpec, StoredQuota
from controller.policy.quota_ledger import CPU_OVERCOMMIT, NOTHING, admit, bounds, judge, never_fits

SMALL = st.integers(0, 6)
AMOUNTS = st.builds(Amount, SMALL, SMALL, SMALL, SMALL)
MOST = st.one_of(st.none(), SMALL)
HARD = st.tuples(MOST, MOST, MOST, MOST).map(
    lambda values: HardLimits.model_construct(cpu=values[0], memory=values[1], pids=values[2], sandboxes=values[3])
)
ONE = st.tuples(MOST, MOST, MOST).map(
    lambda values: PerSandbox.model_construct(cpu=values[0], memory=values[1], pids=values[2])
)


def least(first: Amount, second: Amount) -> Amount:
    return Amount(*(min(getattr(first, resource.unit), getattr(second, resource.unit)) for resource in RESOURCES))


@given(AMOUNTS, AMOUNTS, HARD, ONE, AMOUNTS)
def test_admission_never_exceeds_a_quota(
    usage: Amount, ask: Amount, hard: HardLimits, per_sandbox: PerSandbox, reserved: Amount
) -> None:
    amount = least(reserved, ask)
    refusals = admit(usage, ask, hard, per_sandbox, amount)
    after = usage + ask - amount
    for resource in RESOURCES:
        most, before, now = getattr(hard, resource.name), getattr(usage, resource.unit), getattr(after, resource.unit)
        if refusals.admitted and most is not None:
            assert now <= max(most, before)
    assert refusals.admitted or refusals.reasons


@given(AMOUNTS, AMOUNTS, HARD, ONE)
def test_never_means_it_does_not_fit_an_unused_quota(
    usage: Amount, ask: Amount, hard: HardLimits, per_sandbox: PerSandbox
) -> None:
    assert admit(usage, ask, hard, per_sandbox).never == (not admit(NOTHING, ask, hard, per_sandbox).admitted)


@given(AMOUNTS, AMOUNTS, AMOUNTS, HARD, ONE)
def test_more_use_never_admits_more(
    usage: Amount, increase: Amount, ask: Amount, hard: HardLimits, per_sandbox: PerSandbox
) -> None:
    if admit(usage + increase, ask, hard, per_sandbox).admitted:
        assert admit(usage, ask, hard, per_sandbox).admitted


@given(AMOUNTS, AMOUNTS, HARD, ONE)
def test_reserved_amounts_are_never_refused(
    usage: Amount, reserved: Amount, hard: HardLimits, per_sandbox: PerSandbox
) -> None:
    assert admit(usage, reserved, hard, per_sandbox, reserved).admitted


def test_reasons_name_every_short_resource() -> None:
    hard = QuotaSpec.model_validate({"hard": {"cpu": 2, "memory": "1Gi"}, "perSandbox": {"cpu": 1}})
    refusals = admit(Amount(1500, 512 << 20, 0, 1), Amount(2000, 1 << 30, 64, 1), hard.hard, hard.per_sandbox)
    assert refusals.reasons == (
        "cpu: 2 requested, 1 is the maximum for one sandbox",
        "cpu: 2 requested, 1500m of 2 used",
        "memory: 1Gi requested, 512Mi of 1Gi used",
    )
    assert refusals.never


def host_quota(spec: QuotaSpec | None) -> StoredQuota:
    return StoredQuota(StoredObject("HostQuota", "", "host", "host-uid", {}), spec)


FACTS = HostFacts(cpus=2, memory_bytes=8 << 30)


def test_the_hosts_size_is_the_default_bound() -> None:
    (standard,) = bounds([], FACTS)[""]
    assert standard.hard == HardLimits(cpu=2 * CPU_OVERCOMMIT, memory="8Gi")
    assert standard.hard.cpu == 2000 * CPU_OVERCOMMIT
    quota = host_quota(QuotaSpec.model_validate({"hard": {"memory": "64Gi", "sandboxes": 3}}))
    (bound,) = bounds([quota], FACTS)[""]
    assert bound.hard == HardLimits(cpu=2 * CPU_OVERCOMMIT, memory="64Gi", sandboxes=3)


def test_unknown_host_sizes_bound_nothing() -> None:
    (standard,) = bounds([], HostFacts())[""]
    assert standard.hard == HardLimits()


def test_an_unreadable_quota_admits_nothing() -> None:
    (bound,) = bounds([host_quota(None)], FACTS)[""]
    assert not judge(bound, NOTHING, Amount(sandboxes=1), NOTHING).admitted
    assert not list(never_fits([bound], Amount(sandboxes=1))), "it may be readable again"


def test_every_resource_of_a_spec_is_counted() -> None:
    assert {resource.name for resource in RESOURCES} == set(HardLimits.model_fields)
    assert set(HardQuota.model_fields) - set(HardLimits.model_fields) == {
        "objects",
        "annotations",
        "snapshots",
        "snapshot_storage",
    }, "which are no sandbox's"
    assert replace(NOTHING, **{resource.unit: 0 for resource in RESOURCES}) == NOTHING
