"""Sandboxes that name a SandboxTemplate: found, missing, changed, in use."""

from collections.abc import Iterator

import pytest

from controller.service import errors
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def limits(house: LoopHarness, name: str) -> tuple[int, int]:
    reserved = house.engine.box(house.container_name(name)).limits
    return reserved.cpu_millicores, reserved.memory_bytes >> 20


def test_a_template_says_what_runs_and_its_resources_are_defaults(house: LoopHarness) -> None:
    house.apply_template("tiny", image=TINY, resources={"limits": {"cpu": "250m", "memory": "64Mi"}})
    house.refer("a", "tiny")
    house.refer("b", "tiny", resources={"limits": {"memory": "128Mi"}})
    house.settle()
    assert house.condition("a", "Ready") == house.condition("b", "Ready") == "True Running"
    assert (limits(house, "a"), limits(house, "b")) == ((250, 64), (250, 128))


def test_a_missing_template_is_waited_for(house: LoopHarness) -> None:
    house.refer("a", "tiny")
    house.settle()
    assert house.condition("a", "Accepted") == "False Refused"
    assert house.ours() == {}
    house.apply_template("tiny", image=TINY)
    house.settle()
    assert house.condition("a", "Ready") == "True Running"


def test_a_changed_template_recreates_nothing_until_the_next_start(house: LoopHarness) -> None:
    house.apply_template("tiny", image=TINY)
    house.refer("a", "tiny")
    house.settle()
    name = house.container_name("a")
    before = house.engine.box(name).id
    house.apply_template("tiny", image="other:1", resources={"limits": {"memory": "64Mi"}})
    house.settle()
    assert house.condition("a", "Outdated") == "True RenderedDifferently"
    assert house.engine.box(name).id == before
    assert limits(house, "a")[1] == 64, "resources are changed in place"
    house.refer("a", "tiny", resources={"limits": {"memory": "96Mi"}})
    house.settle()
    assert house.engine.box(name).id == before, "a new generation for other reasons does not recreate it either"
    house.engine.kill(name)
    house.settle()
    assert house.engine.box(name).image_id == house.engine.images["other:1"]
    assert house.condition("a", "Outdated") == "False UpToDate"


def test_another_template_is_a_new_container(house: LoopHarness) -> None:
    house.apply_template("one", image=TINY)
    house.apply_template("two", image="other:1")
    house.refer("a", "one")
    house.settle()
    house.refer("a", "two")
    house.settle()
    assert house.engine.box(house.container_name("a")).image_id == house.engine.images["other:1"]


def test_from_a_template_of_its_own_to_a_named_one_and_back(house: LoopHarness) -> None:
    house.apply("a")
    house.settle()
    house.apply_template("other", image="other:1")
    house.refer("a", "other")
    house.settle()
    assert house.engine.box(house.container_name("a")).image_id == house.engine.images["other:1"]
    house.apply("a")
    house.settle()
    assert house.engine.box(house.container_name("a")).image_id == house.engine.images[TINY]


def test_a_template_in_use_is_not_deleted(house: LoopHarness) -> None:
    house.apply_template("tiny", image=TINY)
    house.refer("a", "tiny")
    with pytest.raises(errors.Conflict, match="used by sandbox a"):
        house.delete("tiny", "sandboxtemplate")
    house.delete("a")
    house.settle()
    house.delete("tiny", "sandboxtemplate")
    assert house.store.get("SandboxTemplate", "default", "tiny") is None


@pytest.mark.parametrize("restarted", [False, True])
def test_template_goes_with_its_last_user(house: LoopHarness, restarted: bool) -> None:
    house.apply_template("tiny", image=TINY)
    house.refer("a", "tiny")
    apply_pool(house, "warm", "tiny", warmReplicas=1)
    house.settle()
    house.delete("warm", "sandboxpool")
    with pytest.raises(errors.Conflict, match="is used by sandbox a;"):
        house.delete("tiny", "sandboxtemplate")
    house.delete("a")
    house.delete("tiny", "sandboxtemplate")
    if restarted:
        house.daemon()
    remaining = []
    while house.store.get("SandboxTemplate", "default", "tiny"):
        remaining.append((house.names(), house.store.get("SandboxPool", "default", "warm") is not None))
        plan = house.run_pass()
        if plan.next_wake is not None:
            house.clock.advance(max(0.0, plan.next_wake - house.clock.now()))
        assert len(remaining) < 60
    assert (["a"], True) in remaining
    assert (house.names(), house.store.get("SandboxPool", "default", "warm"), house.ours()) == ([], None, {})


def test_nothing_starts_from_a_template_that_is_being_deleted(house: LoopHarness) -> None:
    house.apply_template("tiny", image=TINY)
    house.refer("a", "tiny")
    house.settle()
    house.delete("a")
    house.delete("tiny", "sandboxtemplate")
    house.refer("late", "tiny")
    house.settle()
    assert house.names() == ["late"]
    assert house.condition("late", "Accepted") == "False Refused"
    assert house.store.get("SandboxTemplate", "default", "tiny") is None
    house.apply_template("tiny", image=TINY)
    house.settle()
    assert house.condition("late", "Ready") == "True Running"


def test_a_template_that_would_never_run_is_refused(house: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"spec\.user"):
        house.apply_template("root", image=TINY, user="0:0")
    house.apply_template("files", image=TINY, tmpfs=[{"mountPath": "/data", "size": "256Mi"}])
    house.refer("a", "files", resources={"limits": {"memory": "64Mi"}})
    house.settle()
    assert house.condition("a", "Accepted") == "False Refused"
    assert house.ours() == {}
