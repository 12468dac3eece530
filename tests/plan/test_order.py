"""The order of the deciders: four visible lists, and the outcome where two of them disagree."""

from dataclasses import replace

import pytest

from controller.kinds.host import HostSpec, StoredHost
from controller.kinds.hostquota import stored_quota
from controller.kinds.meta import StoredObject
from controller.kinds.observed.pressure import Pressure
from controller.kinds.planning.snapshot import FleetView
from controller.kinds.quota import StoredQuota
from controller.plan.deciders import COMPLETE, PROPOSE, WITHHOLD
from tests.plan.case_file import container, decide, sandbox, snapshot
from tests.snapshots import changed_snapshot

SPEC = {"template": {"image": "a:1"}}


def test_deciders_are_listed_in_the_stated_order() -> None:
    names = [decider.__name__.removeprefix("reconcile_") for decider in PROPOSE]
    assert names == ["unknown", "deletion", "guard", "failure", "refusal", "duplicates", "lifecycle"]
    reasons = [decider.__name__.removeprefix("withhold_") for decider in WITHHOLD]
    assert reasons == ["later_start", "pressure", "cordon", "quota", "wake"]
    assert [decider.__name__ for decider in COMPLETE][-1] == "build_missing"


def test_deletion_comes_before_a_refused_spec_and_pressure() -> None:
    departing = sandbox("a", SPEC, deleted_at=990.0)
    host = snapshot([replace(departing, template=None)], [container(departing)])
    planned = str(decide(changed_snapshot(host, pressure=Pressure(low=("memory",), critical=("memory",)))))
    assert "signal TERM" in planned
    assert "deleted" in planned


def test_pressure_comes_before_quota_and_lifecycle() -> None:
    host = snapshot([sandbox("a", SPEC)], [])
    planned = str(decide(changed_snapshot(host, pressure=Pressure(low=("memory",)))))
    assert "create" not in planned
    assert "HostPressure" in planned


@pytest.mark.parametrize("spec", [HostSpec(schedulable=False), None])
def test_cordon_comes_before_quota_and_lifecycle(spec: HostSpec | None) -> None:
    """Also by a stored spec that this version can't read."""
    cordoned = {"h": StoredHost(StoredObject("Host", "", "host", "h", {}), spec)}
    host = snapshot([sandbox("a", SPEC)], [])
    planned = str(decide(replace(host, fleet=FleetView(hosts=cordoned))))
    assert "create" not in planned
    assert "HostCordoned" in planned
    assert "uncordon host" in planned
    assert "HostCordoned" not in str(
        decide(replace(host, fleet=FleetView(hosts={"h": replace(cordoned["h"], spec=HostSpec())})))
    )


def test_only_this_hosts_cordon_counts() -> None:
    closed = {name: StoredHost(StoredObject("Host", "", name, name, {}), HostSpec(schedulable=False)) for name in "ab"}
    present = replace(snapshot([sandbox("a", SPEC)], []), fleet=FleetView(host="a"))
    assert "HostCordoned" not in str(decide(replace(present, fleet=FleetView(host="a", hosts={"b": closed["b"]}))))
    planned = str(decide(replace(present, fleet=FleetView(host="a", hosts=closed))))
    assert "HostCordoned: host a is cordoned: nothing new is started until `paddock host uncordon a`" in planned
    assert "host b" not in planned


def host_quotas(**memory: str) -> dict[str, StoredQuota]:
    specs = {name: {"hard": {"memory": most}} for name, most in memory.items()}
    objects = [StoredObject("HostQuota", "", name, f"q-{name}", spec) for name, spec in specs.items()]
    return {stored.uid: stored_quota(stored) for stored in objects}


def test_a_host_enforces_its_own_hostquota() -> None:
    present = replace(snapshot([sandbox("a", SPEC)], []), fleet=FleetView(host="a"))
    assert "create" in str(decide(changed_snapshot(present, quotas=host_quotas(b="1Mi", host="1Mi"))))
    waiting = decide(changed_snapshot(present, quotas=host_quotas(a="1Mi", b="8Gi")))
    assert "hostquota a: memory: 512Mi requested" in str(waiting)
    assert "create" not in str(waiting)
    assert {status.ref.name for status in waiting.writes.statuses if status.ref.kind == "HostQuota"} == {"a"}


def test_only_the_leading_host_writes_namespace_quotas() -> None:
    both = host_quotas(a="8Gi") | {"q": stored_quota(StoredObject("Quota", "default", "main", "q", {}))}
    present = changed_snapshot(snapshot([], []), quotas=both)
    for leads, kinds in ((True, {"Quota", "HostQuota"}), (False, {"HostQuota"})):
        statuses = decide(replace(present, fleet=FleetView(host="a", leads=leads))).writes.statuses
        assert {status.ref.kind for status in statuses} == kinds


def test_one_of_another_host_may_come_first() -> None:
    present = snapshot([sandbox("a", {**SPEC, "startAfter": [{"sandbox": "db"}]})], [])
    assert "it starts after db, and there is no such sandbox" in str(decide(present))
    planned = str(decide(replace(present, fleet=FleetView(host="a", shares_store=True))))
    assert "it starts after db, which is on another host, or not there" in planned
