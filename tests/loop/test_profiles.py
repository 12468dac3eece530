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
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "specs/securityprofile").glob("*.yaml"))
GRANTS = ProfileGrants(capabilities=("NET_RAW",))


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store(), policy=Policy(grants=GRANTS))
    yield harness
    harness.close()


def document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def profile(harness: LoopHarness, name: str = "own", **spec: Any) -> None:
    harness.services.apply.apply(
        [Source("test", document("SecurityProfile", name, {"base": "full-isolation", **spec}))]
    )


def stored(harness: LoopHarness, name: str = "own") -> StoredObject:
    security_profile = harness.store.get("SecurityProfile", "", name)
    assert security_profile is not None
    return security_profile


def accepted(harness: LoopHarness) -> str:
    (condition,) = stored(harness).status["conditions"]
    return f"{condition['status']} {condition['reason']}"


def test_a_sandbox_has_the_profile_that_it_names(harness: LoopHarness) -> None:
    profile(harness, defaultLimits={"memory": "96Mi"}, capabilities=["NET_RAW"])
    harness.apply("a", template={"securityLevel": "own"})
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    sandbox = harness.engine.container(harness.container_name("a"))
    assert sandbox.limits.memory_bytes == 96 << 20
    assert accepted(harness) == "True Accepted"
    effective = stored(harness).status["effective"]
    assert (effective["capabilities"], effective["defaultLimits"]["memory"]) == (["NET_RAW"], "96Mi")


def test_one_file_may_hold_the_profile_and_who_uses_it(harness: LoopHarness) -> None:
    sandbox = document("Sandbox", "a", {"template": {"image": TINY, "securityLevel": "own"}})
    with pytest.raises(errors.Invalid, match="there is no security level `own`"):
        harness.services.apply.apply([Source("test", sandbox)])
    own_text = document("SecurityProfile", "own", {"base": "full-isolation"})
    harness.services.apply.apply([Source("test", f"{sandbox}\n---\n{own_text}")])
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"


def test_a_changed_profile_recreates_nothing_until_the_next_start(harness: LoopHarness) -> None:
    profile(harness)
    harness.apply("a", template={"securityLevel": "own"})
    harness.settle()
    name = harness.container_name("a")
    before = harness.engine.container(name).id
    profile(harness, tmpfs=[{"mountPath": "/tmp", "size": "8Mi"}])
    harness.settle()
    assert harness.condition("a", "Outdated") == "True RenderedDifferently"
    assert harness.engine.container(name).id == before
    harness.engine.kill(name)
    harness.settle()
    assert harness.condition("a", "Outdated") == "False UpToDate"
    assert harness.engine.container(name).id != before


def test_what_policy_grants_no_more_is_refused_in_words_and_stops_nothing(harness: LoopHarness) -> None:
    profile(harness, capabilities=["NET_RAW"])
    harness.apply("a", template={"securityLevel": "own"})
    harness.settle()
    before = harness.engine.container(harness.container_name("a")).id
    harness.policy = Policy()
    harness.daemon()
    harness.settle()
    assert accepted(harness) == "False Refused"
    assert "effective" not in stored(harness).status
    assert harness.condition("a", "Accepted") == "False Refused"
    assert harness.engine.container(harness.container_name("a")).id == before
    answer = harness.get("a")
    assert answer is not None
    (message,) = [condition["message"] for condition in answer.status["conditions"] if condition["type"] == "Accepted"]
    assert "`NET_RAW` is more than full-isolation has: none" in message
    with pytest.raises(errors.Invalid, match="can't be enforced here"):
        harness.apply("b", template={"securityLevel": "own"})


def test_a_profile_in_use_is_not_deleted(harness: LoopHarness) -> None:
    profile(harness)
    harness.apply("a", template={"securityLevel": "own"})
    harness.apply_template("t", image=TINY, securityLevel="own")
    kind = discover().by_word("sp")
    assert kind is not None
    with pytest.raises(errors.Conflict) as refusal:
        harness.services.objects.delete(kind, "", "own")
    assert "is used by sandbox default/a; delete or change those first" in str(refusal.value)
    assert "is used by sandboxtemplate default/t" in str(refusal.value)
    harness.delete("a")
    harness.delete("t", "sandboxtemplate")
    harness.services.objects.delete(kind, "", "own")
    assert stored(harness).deleted_at is not None
    with pytest.raises(errors.Invalid, match="there is no security level `own`"):
        harness.apply("late", template={"securityLevel": "own"})
    harness.settle()
    assert (harness.names(), harness.store.get("SecurityProfile", "", "own")) == ([], None)


def test_a_profile_that_a_newer_daemon_wrote_lets_nobody_in(harness: LoopHarness) -> None:
    profile(harness)
    harness.apply("a", template={"securityLevel": "own"})
    harness.settle()
    observed = stored(harness)
    with harness.store.transaction() as transaction:
        newer = {**observed.spec, "later": True}
        transaction.put(StoredObject(observed.kind, "", observed.name, observed.uid, newer, generation=2))
    harness.settle()
    assert harness.condition("a", "Accepted") == "False Refused"
    assert accepted(harness) == "False Refused"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_accepted(harness: LoopHarness, path: Path) -> None:
    answer = harness.services.apply.apply([Source(path.name, path.read_text())])
    harness.run_pass()  # the image of their sandboxes is not there
    names = [applied.obj.name for applied in answer if applied.kind.name == "SecurityProfile"]
    for name in names:
        (condition,) = stored(harness, name).status["conditions"]
        assert (condition["status"], condition["observedGeneration"]) == ("True", 1)
    sandboxes = [applied.obj.name for applied in answer if applied.kind.name == "Sandbox"]
    assert [harness.condition(sandbox, "Accepted") for sandbox in sandboxes] == ["True Admitted"] * len(sandboxes)


@pytest.mark.parametrize("name", BUILT_IN_NAMES)
def test_built_in_profiles_are_nobodys(harness: LoopHarness, name: str) -> None:
    kind = discover().by_word("sp")
    assert kind is not None
    with pytest.raises(errors.Invalid, match=f"test:1:.* metadata.name: SecurityProfile `{name}` is built in"):
        profile(harness, name)
    with pytest.raises(errors.Conflict, match="is built in"):
        harness.services.objects.delete(kind, "", name)
    with pytest.raises(errors.Conflict, match="is built in"):
        harness.services.patch.patch(kind, "", name, {"spec": {"capabilities": []}})
    harness.services.objects.delete_all(kind, "")
    assert [entry.name for entry in harness.services.objects.list(kind).objects] == sorted(BUILT_IN_NAMES)


def test_a_claim_takes_no_sandbox_of_the_profile_as_it_was(harness: LoopHarness) -> None:
    profile(harness)
    harness.apply_template("t", image=TINY, securityLevel="own")
    pool = document("SandboxPool", "p", {"templateRef": {"name": "t"}, "warmReplicas": 1})
    harness.services.apply.apply([Source("test", pool)])
    harness.settle()
    harness.refer("a", "t")
    harness.settle()
    profile(harness, tmpfs=[{"mountPath": "/tmp", "size": "8Mi"}])
    harness.refer("b", "t")
    harness.settle()
    launched = {}
    for name in ("a", "b"):
        sandbox = harness.get(name)
        assert sandbox is not None
        launched[name] = sandbox.status["launchType"]
        assert harness.condition(name, "Ready") == "True Running"
    assert launched == {"a": "Warm", "b": "Cold"}
    assert (harness.condition("a", "Outdated"), harness.condition("b", "Outdated")) == (
        "True RenderedDifferently",
        "False UpToDate",
    )
    harness.refer("c", "t")
    harness.settle()
    answer = harness.get("c")
    assert answer is not None
    assert answer.status["launchType"] == "Warm", "the pool's members are made anew"


def test_the_plan_of_a_changed_profile_tells_whom_it_concerns(harness: LoopHarness) -> None:
    profile(harness)
    harness.apply("a", template={"securityLevel": "own"})
    harness.apply("b")
    harness.settle()
    changed = document("SecurityProfile", "own", {"base": "full-isolation", "defaultLimits": {"memory": "64Mi"}})
    (difference,) = harness.services.diff.diff([Source("test", changed)], plan=True)
    assert [str(forecast.ref) for forecast in difference.forecasts] == ["sandbox/default/a"]
    (change,) = difference.changes
    assert (change.field, change.effect) == ("spec.defaultLimits", "live")
    assert [type(action).__name__ for action in difference.forecasts[0].actions] == ["UpdateLimits"]
    harness.services.apply.apply([Source("test", changed)])
    harness.settle()
    assert harness.engine.container(harness.container_name("a")).limits.memory_bytes == 64 << 20
