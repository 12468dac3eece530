"""Admission beside other hosts: a host judges what names it; of any other object, only what holds on every host."""

from typing import Any

import pytest

from controller.kinds.observed.observed import HostFacts, Observation
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels.levels import Policy
from controller.ports.fleet import SINGLE, Fleet, ManyHosts
from controller.service.admission import admitting

AMONG_OTHERS = ManyHosts("a")
TEMPLATE = {"image": "paddock/test-tiny:1", "command": ["sleep", "infinity"]}
MANY_CORES: dict[str, Any] = {"template": TEMPLATE, "resources": {"limits": {"cpu": "8"}}}
A_GPU: dict[str, Any] = {"template": TEMPLATE, "resources": {"gpuDeviceIds": ["0"]}}
A_FOLDER: dict[str, Any] = {"template": TEMPLATE, "workspace": {"hostPath": "/srv/work", "readOnly": True}}
A_RUNTIME: dict[str, Any] = {"template": {**TEMPLATE, "runtime": "runsc"}}
NO_APPARMOR: dict[str, Any] = {"template": {**TEMPLATE, "appArmorProfile": "docker-default"}}
A_NETWORK: dict[str, Any] = {"template": {**TEMPLATE, "securityLevel": "development"}}
OF_A_HOST = (MANY_CORES, A_GPU, A_FOLDER, A_RUNTIME, NO_APPARMOR, A_NETWORK)


def refused(spec: dict[str, Any], place: Fleet, **more: Any) -> list[str]:
    """Return the fields that a host with two cores and nothing else refuses."""
    observation = Observation(facts=HostFacts(cpus=2), blind="", unguarded="no firewall")
    policy = Policy(scheduler="manual" if place.shares_store else "single")
    admit = admitting(policy, lambda: observation, place=place)
    model = SandboxSpec.model_validate({**spec, **more})
    return [field for field, _ in admit(SANDBOX, model, "default", "box", ())]


@pytest.mark.parametrize("spec", OF_A_HOST)
def test_a_host_judges_what_names_it(spec: dict[str, Any]) -> None:
    assert refused(spec, SINGLE) == refused(spec, AMONG_OTHERS, host="a") != []


@pytest.mark.parametrize("spec", OF_A_HOST)
def test_abilities_of_the_asked_host_bind_no_other(spec: dict[str, Any]) -> None:
    assert refused(spec, AMONG_OTHERS, host="b") == []
    assert (refused(spec, AMONG_OTHERS) == []) is (spec is not A_FOLDER), "a folder is of one host"


def test_what_holds_on_every_host_is_refused_everywhere() -> None:
    level = {"template": {**TEMPLATE, "securityLevel": "none-such"}}
    assert refused(level, AMONG_OTHERS, host="b") == refused(level, SINGLE) == ["spec.template.securityLevel"]
    twice = {"template": TEMPLATE, "resources": {"gpuDeviceIds": ["0", "0"]}}
    assert refused(twice, AMONG_OTHERS, host="b") == ["spec.resources.gpuDeviceIds[1]"]
