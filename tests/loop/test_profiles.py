"""Sandboxes of an operator's own security profile: accepted, changed, forbidden, in use."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.registry import discover
from controller.kinds.securityprofile import BUILT_IN_NAMES, ProfileGrants
from controller.policy.levels.levels import Policy
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "specs/securityprofile").glob("*.yaml"))
GRANTS = ProfileGrants(capabilities=("NET_RAW",))


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store(), policy=Policy(grants=GRANTS))
    yield harness
    harness.close()


def document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def profile(house: LoopHarness, name: str = "own", **spec: Any) -> None:
    house.services.apply.apply([Source("test", document("SecurityProfile", name, {"base": "full-isolation", **spec}))])


def stored(house: LoopHarness, name: str = "own") -> StoredObject:
    security_profile = house.store.get("SecurityProfile", "", name)
    assert security_profile is not None
    return security_profile


def accepted(house: LoopHarness) -> str:
    (condition,) = stored(house).status["conditions"]
    return f"{condition['status']} {condition['reason']}"


def test_a_sandbox_has_the_profile_that_it_names(house: LoopHarness) -> None:
    profile(house, defaultLimits={"memory": "96Mi"}, capabilities=["NET_RAW"])
    house.apply("a", template={"securityLevel": "own"})
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    box = house.engine.box(house.container_name("a"))
    assert box.limits.memory_bytes == 96 << 20
    assert accepted(house) == "True Accepted"
    effective = stored(house).status["effective"]
    assert (effective["capabilities"], effective["defaultLimits"]["memory"]) == (["NET_RAW"], "96Mi")


def test_one_file_may_hold_the_profile_and_who_uses_it(house: LoopHarness) -> None:
    box = document("Sandbox", "a", {"template": {"image": TINY, "securityLevel": "own"}})
    with pytest.raises(errors.Invalid, match="there is no security level `own`"):
        house.services.apply.apply([Source("test", box)])
    own_text = document("SecurityProfile", "own", {"base": "full-isolation"})
    house.services.apply.apply([Source("test", f"{box}\n---\n{own_text}")])
    house.settle()
    assert house.condition("a", "Ready") == "True Running"


def test_a_changed_profile_recreates_nothing_until_the_next_start(house: LoopHarness) -> None:
    profile(house)
    house.apply("a", template={"securityLevel": "own"})
    house.settle()
    name = house.container_name("a")
    before = house.engine.box(name).id
    profile(house, tmpfs=[{"mountPath": "/tmp", "size": "8Mi"}])
    house.settle()
    assert house.condition("a", "Outdated") == "True RenderedDifferently"
    assert house.engine.box(name).id == before
    house.engine.kill(name)
    house.settle()
    assert house.condition("a", "Outdated") == "False UpToDate"
    assert house.engine.box(name).id != before


def test_what_policy_grants_no_more_is_refused_in_words_and_stops_nothing(house: LoopHarness) -> None:
    profile(house, capabilities=["NET_RAW"])
    house.apply("a", template={"securityLevel": "own"})
    house.settle()
    before = house.engine.box(house.container_name("a")).id
    house.policy = Policy()
    house.daemon()
    house.settle()
    assert accepted(house) == "False Refused"
    assert "effective" not in stored(house).status
    assert house.condition("a", "Accepted") == "False Refused"
    assert house.engine.box(house.container_name("a")).id == before
    answer = house.get("a")
    assert answer is not None
    (message,) = [condition["message"] for condition in answer.status["conditions"] if condition["type"] == "Accepted"]
    assert "`NET_RAW` is more than full-isolation has: none" in message
    with pytest.raises(errors.Invalid, match="can't be enforced here"):
        house.apply("b", template={"securityLevel": "own"})


def test_a_profile_in_use_is_not_deleted(house: LoopHarness) -> None:
    profile(house)
    house.apply("a", template={"securityLevel": "own"})
    house.apply_template("t", image=TINY, securityLevel="own")
    kind = discover().by_word("sp")
    assert kind is not None
    with pytest.raises(errors.Conflict) as refusal:
        house.services.objects.delete(kind, "", "own")
    assert "is used by sandbox default/a; delete or change those first" in str(refusal.value)
    assert "is used by sandboxtemplate default/t" in str(refusal.value)
    house.delete("a")
    house.delete("t", "sandboxtemplate")
    house.services.objects.delete(kind, "", "own")
    assert stored(house).deleted_at is not None
    with pytest.raises(errors.Invalid, match="there is no security level `own`"):
        house.apply("late", template={"securityLevel": "own"})
    house.settle()
    assert (house.names(), house.store.get("SecurityProfile", "", "own")) == ([], None)


def test_a_profile_that_a_newer_daemon_wrote_lets_nobody_in(house: LoopHarness) -> None:
    profile(house)
    house.apply("a", template={"securityLevel": "own"})
    house.settle()
    observed = stored(house)
    with house.store.transaction() as transaction:
        newer = {**observed.spec, "later": True}
        transaction.put(StoredObject(observed.kind, "", observed.name, observed.uid, newer, generation=2))
    house.settle()
    assert house.condition("a", "Accepted") == "False Refused"
    assert accepted(house) == "False Refused"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_accepted(house: LoopHarness, path: Path) -> None:
    answer = house.services.apply.apply([Source(path.name, path.read_text())])
    house.run_pass()  # the image of their sandboxes is not there
    names = [applied.obj.name for applied in answer if applied.kind.name == "SecurityProfile"]
    for name in names:
        (condition,) = stored(house, name).status["conditions"]
        assert (condition["status"], condition["observedGeneration"]) == ("True", 1)
    boxes = [applied.obj.name for applied in answer if applied.kind.name == "Sandbox"]
    assert [house.condition(sandbox, "Accepted") for sandbox in boxes] == ["True Admitted"] * len(boxes)


@pytest.mark.parametrize("name", BUILT_IN_NAMES)
def test_built_in_profiles_are_nobodys(house: LoopHarness, name: str) -> None:
    kind = discover().by_word("sp")
    assert kind is not None
    with pytest.raises(errors.Invalid, match=f"test:1:.* metadata.name: SecurityProfile `{name}` is built in"):
        profile(house, name)
    with pytest.raises(errors.Conflict, match="is built in"):
        house.services.objects.delete(kind, "", name)
    with pytest.raises(errors.Conflict, match="is built in"):
        house.services.patch.patch(kind, "", name, {"spec": {"capabilities": []}})
    house.services.objects.delete_all(kind, "")
    assert [entry.name for entry in house.services.objects.list(kind).objects] == sorted(BUILT_IN_NAMES)


def test_a_claim_takes_no_sandbox_of_the_profile_as_it_was(house: LoopHarness) -> None:
    profile(house)
    house.apply_template("t", image=TINY, securityLevel="own")
    pool = document("SandboxPool", "p", {"templateRef": {"name": "t"}, "warmReplicas": 1})
    house.services.apply.apply([Source("test", pool)])
    house.settle()
    house.refer("a", "t")
    house.settle()
    profile(house, tmpfs=[{"mountPath": "/tmp", "size": "8Mi"}])
    house.refer("b", "t")
    house.settle()
    launched = {}
    for name in ("a", "b"):
        harness = house.get(name)
        assert harness is not None
        launched[name] = harness.status["launchType"]
        assert house.condition(name, "Ready") == "True Running"
    assert launched == {"a": "Warm", "b": "Cold"}
    assert (house.condition("a", "Outdated"), house.condition("b", "Outdated")) == (
        "True RenderedDifferently",
        "False UpToDate",
    )
    house.refer("c", "t")
    house.settle()
    answer = house.get("c")
    assert answer is not None
    assert answer.status["launchType"] == "Warm", "the pool's members are made anew"


def test_the_plan_of_a_changed_profile_tells_whom_it_concerns(house: LoopHarness) -> None:
    profile(house)
    house.apply("a", template={"securityLevel": "own"})
    house.apply("b")
    house.settle()
    changed = document("SecurityProfile", "own", {"base": "full-isolation", "defaultLimits": {"memory": "64Mi"}})
    (difference,) = house.services.diff.diff([Source("test", changed)], plan=True)
    assert [str(forecast.ref) for forecast in difference.forecasts] == ["sandbox/default/a"]
    (change,) = difference.changes
    assert (change.field, change.effect) == ("spec.defaultLimits", "live")
    assert [type(action).__name__ for action in difference.forecasts[0].actions] == ["UpdateLimits"]
    house.services.apply.apply([Source("test", changed)])
    house.settle()
    assert house.engine.box(house.container_name("a")).limits.memory_bytes == 64 << 20
