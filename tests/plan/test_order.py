"""The order of the deciders: one visible list, and the outcome where two of them disagree."""

from dataclasses import replace

import pytest

from controller.kinds.host import HostSpec, StoredHost
from controller.kinds.meta import StoredObject
from controller.kinds.observed.pressure import Pressure
from controller.plan.host import DECIDERS
from tests.plan.case_file import container, decide, sandbox, snapshot

SPEC = {"template": {"image": "a:1"}}


def test_deciders_are_listed_in_the_stated_order() -> None:
    names = [each.name.partition(":")[0] for each in DECIDERS]
    stated = ["delete", "security", "pressure", "cordon", "quota", "lifecycle", "pool"]
    assert [each for each in dict.fromkeys(names) if each in stated] == stated


def test_deletion_comes_before_a_refused_spec_and_pressure() -> None:
    going = sandbox("a", SPEC, deleted_at=990.0)
    host = snapshot([replace(going, template=None)], [container(going)])
    planned = str(decide(replace(host, pressure=Pressure(low=("memory",), critical=("memory",)))))
    assert "signal TERM" in planned
    assert "deleted" in planned


def test_pressure_comes_before_quota_and_lifecycle() -> None:
    host = snapshot([sandbox("a", SPEC)], [])
    planned = str(decide(replace(host, pressure=Pressure(low=("memory",)))))
    assert "create" not in planned
    assert "HostPressure" in planned


@pytest.mark.parametrize("spec", [HostSpec(schedulable=False), None])
def test_cordon_comes_before_quota_and_lifecycle(spec: HostSpec | None) -> None:
    """Also by a stored spec that this version can't read."""
    cordoned = {"h": StoredHost(StoredObject("Host", "", "host", "h", {}), spec)}
    host = snapshot([sandbox("a", SPEC)], [])
    planned = str(decide(replace(host, hosts=cordoned)))
    assert "create" not in planned
    assert "HostCordoned" in planned
    assert "uncordon host" in planned
    assert "HostCordoned" not in str(decide(replace(host, hosts={"h": replace(cordoned["h"], spec=HostSpec())})))
