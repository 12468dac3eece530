"""Sandboxes that name a SandboxTemplate: found, missing, changed, in use."""

from collections.abc import Iterator

import pytest

from controller.service import errors
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def limits(harness: LoopHarness, name: str) -> tuple[int, int]:
    reserved = harness.engine.box(harness.container_name(name)).limits
    return reserved.cpu_millicores, reserved.memory_bytes >> 20


def test_a_template_says_what_runs_and_its_resources_are_defaults(harness: LoopHarness) -> None:
    harness.apply_template("tiny", image=TINY, resources={"limits": {"cpu": "250m", "memory": "64Mi"}})
    harness.refer("a", "tiny")
    harness.refer("b", "tiny", resources={"limits": {"memory": "128Mi"}})
    harness.settle()
    assert harness.condition("a", "Ready") == harness.condition("b", "Ready") == "True Running"
    assert (limits(harness, "a"), limits(harness, "b")) == ((250, 64), (250, 128))


def test_a_missing_template_is_waited_for(harness: LoopHarness) -> None:
    harness.refer("a", "tiny")
    harness.settle()
    assert harness.condition("a", "Accepted") == "False Refused"
    assert harness.ours() == {}
    harness.apply_template("tiny", image=TINY)
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"


def test_a_changed_template_recreates_nothing_until_the_next_start(harness: LoopHarness) -> None:
    harness.apply_template("tiny", image=TINY)
    harness.refer("a", "tiny")
    harness.settle()
    name = harness.container_name("a")
    before = harness.engine.box(name).id
    harness.apply_template("tiny", image="other:1", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    assert harness.condition("a", "Outdated") == "True RenderedDifferently"
    assert harness.engine.box(name).id == before
    assert limits(harness, "a")[1] == 64, "resources are changed in place"
    harness.refer("a", "tiny", resources={"limits": {"memory": "96Mi"}})
    harness.settle()
    assert harness.engine.box(name).id == before, "a new generation for other reasons does not recreate it either"
    harness.engine.kill(name)
    harness.settle()
    assert harness.engine.box(name).image_id == harness.engine.images["other:1"]
    assert harness.condition("a", "Outdated") == "False UpToDate"


def test_another_template_is_a_new_container(harness: LoopHarness) -> None:
    harness.apply_template("one", image=TINY)
    harness.apply_template("two", image="other:1")
    harness.refer("a", "one")
    harness.settle()
    harness.refer("a", "two")
    harness.settle()
    assert harness.engine.box(harness.container_name("a")).image_id == harness.engine.images["other:1"]


def test_from_a_template_of_its_own_to_a_named_one_and_back(harness: LoopHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.apply_template("other", image="other:1")
    harness.refer("a", "other")
    harness.settle()
    assert harness.engine.box(harness.container_name("a")).image_id == harness.engine.images["other:1"]
    harness.apply("a")
    harness.settle()
    assert harness.engine.box(harness.container_name("a")).image_id == harness.engine.images[TINY]


def test_a_template_in_use_is_not_deleted(harness: LoopHarness) -> None:
    harness.apply_template("tiny", image=TINY)
    harness.refer("a", "tiny")
    with pytest.raises(errors.Conflict, match="used by sandbox a"):
        harness.delete("tiny", "sandboxtemplate")
    harness.delete("a")
    harness.settle()
    harness.delete("tiny", "sandboxtemplate")
    assert harness.store.get("SandboxTemplate", "default", "tiny") is None


@pytest.mark.parametrize("restarted", [False, True])
def test_template_goes_with_its_last_user(harness: LoopHarness, restarted: bool) -> None:
    harness.apply_template("tiny", image=TINY)
    harness.refer("a", "tiny")
    apply_pool(harness, "warm", "tiny", warmReplicas=1)
    harness.settle()
    harness.delete("warm", "sandboxpool")
    with pytest.raises(errors.Conflict, match="is used by sandbox a;"):
        harness.delete("tiny", "sandboxtemplate")
    harness.delete("a")
    harness.delete("tiny", "sandboxtemplate")
    if restarted:
        harness.daemon()
    remaining = []
    while harness.store.get("SandboxTemplate", "default", "tiny"):
        remaining.append((harness.names(), harness.store.get("SandboxPool", "default", "warm") is not None))
        plan = harness.run_pass()
        if plan.next_wake is not None:
            harness.clock.advance(max(0.0, plan.next_wake - harness.clock.now()))
        assert len(remaining) < 60
    assert (["a"], True) in remaining
    assert (harness.names(), harness.store.get("SandboxPool", "default", "warm"), harness.ours()) == ([], None, {})


def test_nothing_starts_from_a_template_that_is_being_deleted(harness: LoopHarness) -> None:
    harness.apply_template("tiny", image=TINY)
    harness.refer("a", "tiny")
    harness.settle()
    harness.delete("a")
    harness.delete("tiny", "sandboxtemplate")
    harness.refer("late", "tiny")
    harness.settle()
    assert harness.names() == ["late"]
    assert harness.condition("late", "Accepted") == "False Refused"
    assert harness.store.get("SandboxTemplate", "default", "tiny") is None
    harness.apply_template("tiny", image=TINY)
    harness.settle()
    assert harness.condition("late", "Ready") == "True Running"


def test_a_template_that_would_never_run_is_refused(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"spec\.user"):
        harness.apply_template("root", image=TINY, user="0:0")
    harness.apply_template("files", image=TINY, tmpfs=[{"mountPath": "/data", "size": "256Mi"}])
    harness.refer("a", "files", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    assert harness.condition("a", "Accepted") == "False Refused"
    assert harness.ours() == {}
