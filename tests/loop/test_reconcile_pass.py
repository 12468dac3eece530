"""Turns over a real store and the fake engine: what becomes of a sandbox, and of a daemon that dies at any step."""

from collections.abc import Iterator

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.action import CreateContainer, RemoveContainer, StartContainer, UpdateLimits
from controller.kinds.planning.outcome import Transient, Waiting
from controller.ports import StoreError
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness, Moment


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def test_a_sandbox_is_made_and_kept(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    name = house.container_name("web")
    house.engine.kill(name)
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    house.engine.remove(name)
    house.settle()
    assert house.engine.box(name).state is State.RUNNING
    web = house.get("web")
    assert web is not None
    assert web.status["restartCount"] == 2


def test_settled_means_no_more_calls_and_no_more_writes(house: LoopHarness) -> None:
    for index in range(5):
        house.apply(f"box-{index}")
    house.settle()
    calls, revision = len(house.engine.calls), house.store.revision()
    for _ in range(3):
        house.engine.observe_now()
        house.run_pass()
    assert (len(house.engine.calls), house.store.revision()) == (calls, revision)


def test_the_record_is_there_before_the_container(house: LoopHarness) -> None:
    observed: list[int] = []
    house.engine.before_act = lambda action: observed.append(len(house.store.instances()))
    house.apply("web")
    house.settle()
    assert observed[0] == 1


def test_what_the_store_says_is_ready_has_its_container_in_the_snapshot(house: LoopHarness) -> None:
    """Metrics are asked for as soon as Ready is seen, before the pass that told of it has ended."""
    ready: list[bool] = []

    def watch(_after: bool) -> None:
        if house.condition("web", "Ready") == "True Running":
            ready.append(house.reconcile_pass.last is not None and len(house.reconcile_pass.last.alive()) == 1)

    house.apply("web")
    house.watch = watch
    house.settle()
    assert ready
    assert all(ready)


def test_nothing_is_done_while_the_store_can_not_remember(house: LoopHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    house.apply("web")

    def refuse(_writes: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(house.store, "record", refuse)
    with pytest.raises(StoreError):
        house.run_pass()
    assert house.engine.calls == []
    monkeypatch.undo()
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


def test_a_crash_loop_backs_off_and_a_restart_of_the_daemon_remembers(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    name = house.container_name("web")
    for _ in range(2):
        house.engine.exit(name, 1)
        house.settle(seconds=0)
    assert house.condition("web", "Ready") == "False CrashLoopBackOff"
    starts = len(house.engine.calls)
    house.daemon()
    house.settle(seconds=0)
    assert len(house.engine.calls) == starts
    house.clock.advance(20)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"


def test_a_failed_start_keeps_its_first_cause(house: LoopHarness) -> None:
    messages = ("no such device", "endpoint pdk-web exists already: 4a1", "endpoint pdk-web exists already: 7f2")
    house.engine.fail_next(StartContainer, *(Transient("StartFailed", name) for name in messages))
    house.apply("web")

    def degraded() -> str:
        web = house.get("web")
        assert web is not None
        return next(condition["message"] for condition in web.status["conditions"] if condition["type"] == "Degraded")

    house.settle(seconds=0)
    assert degraded() == "no such device"
    for message in messages[1:]:
        house.clock.advance(2)
        house.settle(seconds=0)
        assert degraded() == f"{message}; the first try said: no such device"


def test_failed_calls_back_off_and_are_forgotten(house: LoopHarness) -> None:
    house.engine.fail_next(StartContainer, *[Transient("StartFailed", "no")] * 3)
    house.apply("web")
    house.settle(seconds=0)
    assert house.condition("web", "Degraded") == "True StartFailed"
    before = house.clock.now()
    house.settle()
    assert house.clock.now() - before == pytest.approx(1 + 2 + 4, abs=0.1)
    assert house.condition("web", "Degraded") == "False AsExpected"
    assert house.store.instances()[0].state.failure is None


def test_readiness_names_a_missing_image_at_each_try(house: LoopHarness) -> None:
    house.apply("web", template={"image": "gone:1"})
    house.settle(seconds=0)
    observed = set()
    for _ in range(40):
        house.run_pass()
        observed.add(house.condition("web", "Ready"))
        house.clock.advance(5)
    assert observed == {"False ImagePullFailed"}
    house.engine.add_image("gone:1")
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


def test_a_pinned_image_that_is_gone_backs_off_and_a_change_of_the_spec_takes_the_new_one(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    house.engine.add_image(house.engine.box(house.container_name("web")).image)
    house.engine.remove(house.container_name("web"))
    before = len(house.engine.calls)
    house.settle(seconds=120)
    assert house.condition("web", "Degraded") == "True ImageMissing"
    assert len(house.engine.calls) - before < 20
    house.apply("web", template={"env": [{"name": "A", "value": "1"}]})
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


def test_a_resize_that_has_to_wait_says_for_what(house: LoopHarness) -> None:
    house.apply("web", resources={"limits": {"memory": "256Mi"}})
    house.settle()
    house.engine.fail_next(UpdateLimits, Waiting(5, "MemoryInUse", "200Mi are in use"))
    house.apply("web", resources={"limits": {"memory": "128Mi"}})
    house.settle(seconds=0)
    assert house.condition("web", "Resized") == "False Deferred"
    assert house.condition("web", "Ready") == "True Running"
    house.settle()
    assert house.condition("web", "Resized") == "True InForce"


def test_an_engine_that_goes_away_makes_nothing_twice(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    house.engine.go_down("connection refused")
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "Unknown EngineUnreachable"
    calls = len(house.engine.calls)
    house.engine.come_up()
    house.engine.observe_now(full=True)
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert len(house.engine.calls) == calls


def test_an_engine_that_goes_away_in_the_middle_grows_no_back_off(house: LoopHarness) -> None:
    house.engine.before_act = lambda action: house.engine.go_down() if isinstance(action, StartContainer) else None
    house.apply("web")
    house.settle(seconds=0)
    house.engine.before_act = None
    house.engine.come_up()
    house.engine.observe_now(full=True)
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert house.store.instances()[0].state.failure is None


def test_what_the_engine_still_does_after_a_deletion_is_cleaned_up(house: LoopHarness) -> None:
    house.apply("web")
    house.run_pass()
    house.delete("web")
    house.settle()
    assert house.names() == []
    assert house.ours() == {}
    assert house.store.instances() == []


def test_a_foreign_container_on_our_name_is_left_alone(house: LoopHarness) -> None:
    house.apply("web", runState="Suspended")
    house.settle()
    name = house.container_name("web")
    house.engine.add_foreign(name)
    house.apply("web")
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "False NameConflict"
    house.delete("web")
    house.settle()
    assert house.engine.exists(name)


@pytest.mark.parametrize("is_dead", [False, True], ids=["running", "dead"])
def test_containers_with_swapped_names_get_their_own(house: LoopHarness, is_dead: bool) -> None:
    names = []
    for entry in ("a", "b", "c"):
        house.apply(entry)
        house.settle()
        names.append(house.container_name(entry))
    before = [house.engine.box(text).id for text in names]
    house.engine.rename(names[0], "aside")
    for name, free in ((names[1], names[0]), (names[2], names[1]), ("aside", names[2])):
        house.engine.rename(name, free)
    if is_dead:
        for name in names:
            house.engine.kill(name)
    house.settle()
    assert [house.engine.box(text).id for text in names] == before
    assert [house.condition(single, "Ready") for single in ("a", "b", "c")] == ["True Running"] * 3
    removed = [single for single in house.engine.calls if isinstance(single, RemoveContainer)]
    assert removed == []


def test_a_moved_on_instance_is_read_again(house: LoopHarness) -> None:
    """Another process changed the record: the pass is planned again on what is true now."""
    from dataclasses import replace

    from controller.kinds.planning.plan import Writes
    from controller.ports import Conflict

    house.apply("web")
    house.settle()
    (instance,) = house.store.instances()
    house.store.record(Writes(instances=(replace(instance, state=replace(instance.state, restarts=7)),)))
    house.engine.kill(house.container_name("web"))
    with pytest.raises(Conflict):
        house.run_pass()
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert house.store.instances()[0].state.restarts == 8


def scenario(house: LoopHarness, step: int) -> None:
    """A life in which everything happens once; each step is what a user or the world does."""
    match step:
        case 0:
            house.apply("one", resources={"limits": {"memory": "64Mi"}})
            house.apply("two")
        case 1:
            house.apply("one", resources={"limits": {"memory": "128Mi"}})
            house.engine.kill(house.container_name("two"))
        case 2:
            house.apply("one", template={"image": "other:1"}, resources={"limits": {"memory": "128Mi"}})
            house.engine.remove(house.container_name("two"))
        case 3:
            house.apply("two", runState="Suspended")
        case _:
            house.delete("one")
            house.apply("two")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_daemon_killed_at_any_step_is_followed_by_one_that_finishes(world: World, after: bool) -> None:
    """From all that is there at each step of a life, it goes on with the next daemon."""
    house = LoopHarness(world.store())
    house.engine.add_foreign("somebody-elses")
    moments = list[tuple[int, Moment]]()
    for step in range(5):
        scenario(house, step)
        house.watch = lambda now, step=step: (
            moments.append((step, Moment(house, world.path()))) if now is after else None
        )
        house.settle()
        house.watch = lambda _after: None
    assert len(moments) > 15
    for at, (start, moment) in enumerate(moments, 1):
        moment.take_up(house)
        house.settle()
        for step in range(start + 1, 5):
            scenario(house, step)
            house.settle()
        assert house.names() == ["two"], f"step {at}"
        assert house.condition("two", "Ready") == "True Running", f"step {at}"
        two = house.get("two")
        assert two is not None
        assert house.ours() == {two.uid: [house.container_name("two")]}, f"step {at}"
        assert [instance.parent_uid for instance in house.store.instances()] == [two.uid]
        assert house.engine.exists("somebody-elses")
        moment.close()
    house.close()


def test_creates_run_in_parallel_but_never_two_for_one_object(world: World) -> None:
    house = LoopHarness(world.store(), threads=4)
    try:
        for index in range(12):
            house.apply(f"box-{index}")
        house.settle()
        names = [call.config.name for call in house.engine.calls if isinstance(call, CreateContainer)]
        assert len(names) == len(set(names)) == 12
    finally:
        house.close()
