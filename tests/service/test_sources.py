"""Read-only kinds, over a real loop on the fake engine, and with a failing engine or store."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.api.common.models import object_model
from controller.kinds.meta import StoredObject
from controller.kinds.observed.canary import CanaryResult
from controller.kinds.observed.observed import Observation
from controller.kinds.planning.action import StartContainer
from controller.kinds.planning.outcome import Transient
from controller.kinds.registry import Kind, discover
from controller.kinds.runtime.package_hosts import PackageHosts, version_of
from controller.kinds.sandbox import Template
from controller.kinds.securityprofile import SecurityProfileSpec
from controller.policy.levels.levels import BUILT_IN, FULL_ISOLATION, Policy
from controller.policy.levels.package_hosts import with_packages
from controller.policy.profiles import refusals
from controller.ports import StoreError
from controller.service import errors
from controller.service.listing import serialize
from controller.service.sources.host import HostSource
from controller.service.sources.securityprofile import ProfileSource
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import filled
from tests.migrated import open_store


@pytest.fixture
def harness(tmp_path: Path, quiet: None) -> Iterator[LoopHarness]:
    with open_store(tmp_path) as store:
        harness = LoopHarness(store)
        yield harness
        harness.close()


def kind_of(name: str) -> Kind:
    kind = discover().by_name(name)
    assert kind is not None
    return kind


def shown(harness: LoopHarness, kind: str, **asked: Any) -> list[dict[str, Any]]:
    """The objects as clients get them, each held against the description of its kind."""
    objects = harness.services.objects.list(kind_of(kind), **asked).objects
    for stored in objects:
        object_model(kind_of(kind)).model_validate(serialize.object_json(kind_of(kind), stored))
    return [serialize.object_json(kind_of(kind), entry) for entry in objects]


def test_an_instance_shows_its_record_and_container(harness: LoopHarness) -> None:
    harness.apply("web", resources={"limits": {"cpu": "500m", "memory": "64Mi", "pids": 20}})
    harness.settle()
    (document,) = shown(harness, "Instance", namespace="default")
    name, sandbox = harness.container_name("web"), harness.get("web")
    assert sandbox is not None
    (container,) = harness.engine.observe().containers[sandbox.uid]
    assert document["metadata"]["name"] == name
    assert document["metadata"]["labels"] == {"paddock.name": "web", "paddock.role": "sandbox"}
    assert document["spec"] == {
        "parent": {"kind": "Sandbox", "name": "web", "uid": sandbox.uid},
        "role": "sandbox",
        "reserves": {"cpu": "500m", "memory": "64Mi", "pids": 20},
    }
    assert (document["status"]["state"], document["status"]["containerID"]) == ("Running", container.id)
    assert document["status"]["limits"] == document["spec"]["reserves"]
    assert harness.services.objects.get(kind_of("Instance"), "default", name).name == name
    with pytest.raises(errors.NotFound):
        harness.services.objects.get(kind_of("Instance"), "team", name)
    assert shown(harness, "Instance", namespace="team") == []


def test_a_warm_member_of_a_pool_shows_its_own_container(harness: LoopHarness) -> None:
    filled(harness, 1)
    (document,) = shown(harness, "Instance", namespace="default")
    assert (document["spec"]["parent"]["kind"], document["spec"]["role"]) == ("SandboxPool", "warm")
    assert document["status"]["state"] == "Running"


def test_an_instance_shows_its_last_termination_and_failure(harness: LoopHarness) -> None:
    harness.apply("web", restartPolicy="Never")
    harness.settle()
    first = shown(harness, "Instance")[0]["metadata"]
    harness.engine.kill(harness.container_name("web"))
    harness.settle()
    (document,) = shown(harness, "Instance")
    assert document["status"]["state"] == "Exited"
    assert document["status"]["lastTermination"]["exitCode"] == 137
    assert (document["metadata"]["uid"], document["metadata"]["name"]) == (first["uid"], first["name"])
    harness.apply("other")
    harness.engine.fail_next(StartContainer, Transient("StartFailed", "no"))
    for _ in range(4):
        harness.run_pass()
    second = shown(harness, "Instance", fields="spec.parent.name=other")[0]
    assert (second["status"]["failure"]["reason"], second["status"]["failure"]["count"]) == ("StartFailed", 1)
    assert second["status"]["failure"]["retryTime"]


def test_an_instance_without_container_is_absent(harness: LoopHarness) -> None:
    harness.apply("web", runState="Suspended")
    harness.settle()
    harness.apply("web")
    harness.settle()
    harness.engine.go_down("connection refused")
    (unseen,) = shown(harness, "Instance")
    assert (unseen["status"]["state"], "connection refused" in unseen["status"]["message"]) == ("Unknown", True)
    harness.engine.come_up()
    harness.engine.remove(harness.container_name("web"))
    harness.engine.observe_now(full=True)
    (removed,) = shown(harness, "Instance")
    assert removed["status"]["state"] == "Absent"
    assert "containerID" not in removed["status"]


def test_events_are_objects_with_a_name_that_stays(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    harness.apply("db")
    harness.settle()
    observed = shown(harness, "Event", namespace="default", fields="involvedObject.name=web")
    assert [document["reason"] for document in observed] == ["Created", "Started"]
    started = observed[1]
    assert started["involvedObject"]["kind"] == "Sandbox"
    name = started["metadata"]["name"]
    (event,) = [entry for entry in harness.store.events(name="web") if entry.reason == "Started"]
    with harness.store.transaction() as transaction:
        transaction.add_event(replace(event, at=event.at + 60, first_at=0.0))
    again = serialize.object_json(kind_of("Event"), harness.services.objects.get(kind_of("Event"), "default", name))
    assert again["metadata"]["uid"] == started["metadata"]["uid"]
    assert (again["count"], again["firstTimestamp"]) == (2, started["firstTimestamp"])
    assert again["lastTimestamp"] > again["firstTimestamp"]
    assert shown(harness, "Event", namespace="default", fields="type!=Normal") == []
    assert shown(harness, "Event", namespace="team") == []


def test_the_host_shows_engine_facts_and_conditions(harness: LoopHarness) -> None:
    harness.engine.observe_now(full=True)
    harness.apply("web")
    harness.settle()
    (host,) = shown(harness, "Host")
    facts = harness.engine.observe().facts
    assert host["metadata"]["name"] == "host"
    assert host["status"]["capacity"] == {"cpu": "4", "memory": "16Gi"}
    assert host["status"]["engine"]["version"] == facts.engine_version
    assert host["status"]["instances"] == 1
    assert conditions(host) == {
        "EngineReachable": "True Answered",
        "StoreWritable": "True Answered",
        "DiskQuotaEnforceable": "False Soft",
        "DefaultRuntime": "True NotRegistered",
        "NetworkGuard": "True InForce",
        **NOT_READ,
    }
    harness.engine.go_down("connection refused")
    (host,) = shown(harness, "Host")
    assert conditions(host)["EngineReachable"] == "False NoAnswer"
    assert host["status"]["engine"]["version"] == facts.engine_version  # it was true, and is what is known


# No gauge is read in this harness: what is not known is not called enough.
NOT_READ = dict.fromkeys(("HibernationAvailable", "MemoryPressure", "DiskPressure", "PIDPressure"), "Unknown NotRead")


def conditions(host: dict[str, Any]) -> dict[str, str]:
    return {
        condition["type"]: f"{condition['status']} {condition['reason']}" for condition in host["status"]["conditions"]
    }


class BrokenStore:
    """A store that can be neither read nor written."""

    instance_id = "i-1"

    def ping(self) -> str:
        return "disk full"

    def get(self, kind: str, namespace: str, name: str) -> Any:
        raise StoreError("disk full")

    def count_instances(self, host: str | None = None) -> Any:
        raise StoreError("disk full")


def test_the_host_answers_without_store_or_observation() -> None:
    host = HostSource(BrokenStore(), Observation).get("", "host")  # type: ignore[arg-type]  # what it uses of a store
    assert host is not None
    as_client = serialize.object_json(kind_of("Host"), host)
    object_model(kind_of("Host")).model_validate(as_client)
    document = conditions(as_client)
    assert (document["EngineReachable"], document["StoreWritable"]) == ("Unknown NotLookedYet", "False NotWritable")
    assert document["NetworkGuard"] == "Unknown NotLookedYet"
    assert set(as_client["status"]) == {"paddock", "conditions"}


@pytest.mark.parametrize(
    ("guarded", "unguarded", "wanted"),
    [
        (CanaryResult("Holds"), "", "True InForce"),
        (CanaryResult("Pending", "being tried"), "", "True InForce"),
        (CanaryResult("Untried", "no image"), "", "Unknown Untried"),
        (CanaryResult("Broken", "this host answers"), "", "False Broken"),
        (CanaryResult("Holds"), "the table is gone", "False NotInForce"),
    ],
)
def test_what_the_canary_found_is_the_hosts_condition(guarded: CanaryResult, unguarded: str, wanted: str) -> None:
    observation = Observation(revision=1, blind="", unguarded=unguarded)
    host = HostSource(BrokenStore(), lambda: observation, canary=lambda: guarded).get("", "host")  # type: ignore[arg-type]
    assert host is not None
    assert conditions({"status": host.status})["NetworkGuard"] == wanted


def test_a_profile_is_what_its_level_says() -> None:
    profiles = {stored.name: stored for stored in ProfileSource().list(None, None, 0)}  # type: ignore[arg-type]  # all of them
    networks = {name: profile.status["effective"]["network"] for name, profile in profiles.items()}
    assert networks["development"] == {"mode": "sealed", "peers": True}
    assert networks["production"] == {"mode": "public", "localNetwork": False}
    assert networks["build"] == {"mode": "sealed", "peers": True, "allowedHosts": [], "version": version_of(())}
    observed = profiles[FULL_ISOLATION.name]
    assert observed.spec["network"] == {"mode": FULL_ISOLATION.network}
    assert observed.spec["noNewPrivileges"] is True
    wider = replace(FULL_ISOLATION, name="wider", capabilities=("CAP_CHOWN",), read_only_root=False)
    answer = ProfileSource(Policy(levels={**BUILT_IN, "wider": wider})).get("", "wider")
    assert answer is not None
    assert (answer.spec["capabilities"], answer.spec["readOnlyRootFilesystem"]) == (["CAP_CHOWN"], False)


def test_a_built_in_profiles_spec_can_be_applied() -> None:
    for stored in ProfileSource().list(None, None, 0):  # type: ignore[arg-type]  # all of them
        spec = SecurityProfileSpec.model_validate(stored.spec)
        assert refusals(spec, Policy()) == ()
        as_client = serialize.object_json(kind_of("SecurityProfile"), stored)
        object_model(kind_of("SecurityProfile")).model_validate(as_client)


def test_profiles_are_those_that_a_sandbox_may_name() -> None:
    offered = {name for name, level in BUILT_IN.items() if level.offered}
    assert {stored.name for stored in ProfileSource().list(None, None, 0)} == offered  # type: ignore[arg-type]
    default = Template(image="a").security_level
    assert isinstance(ProfileSource().get("", default), StoredObject)
    missing = replace(FULL_ISOLATION, name="later", offered=False, missing="it needs what is not there")
    with pytest.raises(errors.NotFound, match="not offered: it needs"):
        ProfileSource(Policy(levels={**BUILT_IN, "later": missing})).get("", "later")


def test_the_package_hosts_have_a_version() -> None:
    package_hosts = PackageHosts(
        ("deb.example.org",), ("pip (/etc/pip.conf): 192.0.2.7 is an IP address; sandboxes reach host names only",)
    )
    versions = set()
    for listed in ([], ["pip.example.org"]):
        source = ProfileSource(with_packages(Policy(), package_hosts, listed))
        profile = source.get("", "build")
        assert profile is not None
        network = profile.status["effective"]["network"]
        assert network["allowedHosts"] == ["deb.example.org", *listed]
        assert network["leftOut"] == list(package_hosts.left_out)
        versions.add(network["version"])
    assert len(versions) == 2
