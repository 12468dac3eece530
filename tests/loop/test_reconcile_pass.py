"""Turns over a real store and the fake engine: what becomes of a sandbox, and of a daemon that dies at any step."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.action import CreateContainer, RemoveContainer, StartContainer, UpdateLimits
from controller.kinds.planning.outcome import Transient, Waiting
from controller.ports import StoreError
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness, killed_at_each_step


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def test_a_sandbox_is_made_and_kept(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    name = harness.container_name("web")
    harness.engine.kill(name)
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    harness.engine.remove(name)
    harness.settle()
    assert harness.engine.box(name).state is State.RUNNING
    web = harness.get("web")
    assert web is not None
    assert web.status["restartCount"] == 2


def test_settled_means_no_more_calls_and_no_more_writes(harness: LoopHarness) -> None:
    for index in range(5):
        harness.apply(f"box-{index}")
    harness.settle()
    calls, revision = len(harness.engine.calls), harness.store.revision()
    for _ in range(3):
        harness.engine.observe_now()
        harness.run_pass()
    assert (len(harness.engine.calls), harness.store.revision()) == (calls, revision)


def test_the_record_is_there_before_the_container(harness: LoopHarness) -> None:
    observed: list[int] = []
    harness.engine.before_act = lambda action: observed.append(len(harness.store.instances()))
    harness.apply("web")
    harness.settle()
    assert observed[0] == 1


def test_what_the_store_says_is_ready_has_its_container_in_the_snapshot(harness: LoopHarness) -> None:
    """Metrics are asked for as soon as Ready is seen, before the pass that told of it has ended."""
    ready: list[bool] = []

    def watch(_after: bool) -> None:
        if harness.condition("web", "Ready") == "True Running":
            ready.append(harness.reconcile_pass.last is not None and len(harness.reconcile_pass.last.alive()) == 1)

    harness.apply("web")
    harness.watch = watch
    harness.settle()
    assert ready
    assert all(ready)


def test_nothing_is_done_while_the_store_can_not_remember(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.apply("web")

    def refuse(_writes: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(harness.store, "record", refuse)
    with pytest.raises(StoreError):
        harness.run_pass()
    assert harness.engine.calls == []
    monkeypatch.undo()
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"


def test_a_crash_loop_backs_off_and_a_restart_of_the_daemon_remembers(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    name = harness.container_name("web")
    for _ in range(2):
        harness.engine.exit(name, 1)
        harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "False CrashLoopBackOff"
    starts = len(harness.engine.calls)
    harness.daemon()
    harness.settle(seconds=0)
    assert len(harness.engine.calls) == starts
    harness.clock.advance(20)
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "True Running"


def test_a_failed_start_keeps_its_first_cause(harness: LoopHarness) -> None:
    messages = ("no such device", "endpoint pdk-web exists already: 4a1", "endpoint pdk-web exists already: 7f2")
    harness.engine.fail_next(StartContainer, *(Transient("StartFailed", name) for name in messages))
    harness.apply("web")

    def degraded() -> str:
        web = harness.get("web")
        assert web is not None
        return next(condition["message"] for condition in web.status["conditions"] if condition["type"] == "Degraded")

    harness.settle(seconds=0)
    assert degraded() == "no such device"
    for message in messages[1:]:
        harness.clock.advance(2)
        harness.settle(seconds=0)
        assert degraded() == f"{message}; the first try said: no such device"


def test_failed_calls_back_off_and_are_forgotten(harness: LoopHarness) -> None:
    harness.engine.fail_next(StartContainer, *[Transient("StartFailed", "no")] * 3)
    harness.apply("web")
    harness.settle(seconds=0)
    assert harness.condition("web", "Degraded") == "True StartFailed"
    before = harness.clock.now()
    harness.settle()
    assert harness.clock.now() - before == pytest.approx(1 + 2 + 4, abs=0.1)
    assert harness.condition("web", "Degraded") == "False AsExpected"
    assert harness.store.instances()[0].state.failure is None


def test_readiness_names_a_missing_image_at_each_try(harness: LoopHarness) -> None:
    harness.apply("web", template={"image": "gone:1"})
    harness.settle(seconds=0)
    observed = set()
    for _ in range(40):
        harness.run_pass()
        observed.add(harness.condition("web", "Ready"))
        harness.clock.advance(5)
    assert observed == {"False ImagePullFailed"}
    harness.engine.add_image("gone:1")
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"


def test_a_pinned_image_that_is_gone_backs_off_and_a_change_of_the_spec_takes_the_new_one(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    harness.engine.add_image(harness.engine.box(harness.container_name("web")).image)
    harness.engine.remove(harness.container_name("web"))
    before = len(harness.engine.calls)
    harness.settle(seconds=120)
    assert harness.condition("web", "Degraded") == "True ImageMissing"
    assert len(harness.engine.calls) - before < 20
    harness.apply("web", template={"env": [{"name": "A", "value": "1"}]})
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"


def test_a_resize_that_has_to_wait_says_for_what(harness: LoopHarness) -> None:
    harness.apply("web", resources={"limits": {"memory": "256Mi"}})
    harness.settle()
    harness.engine.fail_next(UpdateLimits, Waiting(5, "MemoryInUse", "200Mi are in use"))
    harness.apply("web", resources={"limits": {"memory": "128Mi"}})
    harness.settle(seconds=0)
    assert harness.condition("web", "Resized") == "False Deferred"
    assert harness.condition("web", "Ready") == "True Running"
    harness.settle()
    assert harness.condition("web", "Resized") == "True InForce"


def test_an_engine_that_goes_away_makes_nothing_twice(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    harness.engine.go_down("connection refused")
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "Unknown EngineUnreachable"
    calls = len(harness.engine.calls)
    harness.engine.come_up()
    harness.engine.observe_now(full=True)
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    assert len(harness.engine.calls) == calls


def test_an_engine_that_goes_away_in_the_middle_grows_no_back_off(harness: LoopHarness) -> None:
    harness.engine.before_act = lambda action: harness.engine.go_down() if isinstance(action, StartContainer) else None
    harness.apply("web")
    harness.settle(seconds=0)
    harness.engine.before_act = None
    harness.engine.come_up()
    harness.engine.observe_now(full=True)
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.store.instances()[0].state.failure is None


def test_what_the_engine_still_does_after_a_deletion_is_cleaned_up(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.run_pass()
    harness.delete("web")
    harness.settle()
    assert harness.names() == []
    assert harness.ours() == {}
    assert harness.store.instances() == []


def test_a_foreign_container_on_our_name_is_left_alone(harness: LoopHarness) -> None:
    harness.apply("web", runState="Suspended")
    harness.settle()
    name = harness.container_name("web")
    harness.engine.add_foreign(name)
    harness.apply("web")
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "False NameConflict"
    harness.delete("web")
    harness.settle()
    assert harness.engine.exists(name)


@pytest.mark.parametrize("is_dead", [False, True], ids=["running", "dead"])
def test_containers_with_swapped_names_get_their_own(harness: LoopHarness, is_dead: bool) -> None:
    names = []
    for entry in ("a", "b", "c"):
        harness.apply(entry)
        harness.settle()
        names.append(harness.container_name(entry))
    before = [harness.engine.box(text).id for text in names]
    harness.engine.rename(names[0], "aside")
    for name, free in ((names[1], names[0]), (names[2], names[1]), ("aside", names[2])):
        harness.engine.rename(name, free)
    if is_dead:
        for name in names:
            harness.engine.kill(name)
    harness.settle()
    assert [harness.engine.box(text).id for text in names] == before
    assert [harness.condition(single, "Ready") for single in ("a", "b", "c")] == ["True Running"] * 3
    removed = [single for single in harness.engine.calls if isinstance(single, RemoveContainer)]
    assert removed == []


def test_a_moved_on_instance_is_read_again(harness: LoopHarness) -> None:
    """Another process changed the record: the pass is planned again on what is true now."""
    from dataclasses import replace

    from controller.kinds.planning.plan import Writes
    from controller.ports import Conflict

    harness.apply("web")
    harness.settle()
    (instance,) = harness.store.instances()
    harness.store.record(Writes(instances=(replace(instance, state=replace(instance.state, restarts=7)),)))
    harness.engine.kill(harness.container_name("web"))
    with pytest.raises(Conflict):
        harness.run_pass()
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.store.instances()[0].state.restarts == 8


def deeds_of(harness: LoopHarness) -> tuple[Callable[[], object], ...]:
    """Return a life in which everything happens once: what a user or the world does, and what comes of it."""

    def apply(name: str, memory: str = "64Mi", **spec: Any) -> None:
        harness.apply(name, resources={"limits": {"memory": memory}}, **spec)

    return (
        *(lambda: apply("one"), lambda: apply("two"), harness.settle),
        *(lambda: apply("one", "128Mi"), lambda: harness.engine.kill(harness.container_name("two")), harness.settle),
        lambda: apply("one", "128Mi", template={"image": "other:1"}),
        *(lambda: harness.engine.remove(harness.container_name("two")), harness.settle),
        *(lambda: apply("two", runState="Suspended"), harness.settle),
        *(lambda: harness.delete("one"), lambda: apply("two"), harness.settle),
    )


def test_a_daemon_killed_at_any_step_is_followed_by_one_that_finishes(world: World, harness: LoopHarness) -> None:
    """From all that is there at each step of a life, it goes on with the next daemon."""
    harness.engine.add_foreign("somebody-elses")
    deeds, moments = deeds_of(harness), 0
    for number in killed_at_each_step(harness, world.path(), *deeds):
        moments += 1
        harness.settle()
        for deed in deeds[number + 1 :]:
            deed()
        assert harness.names() == ["two"], f"moment {moments}"
        assert harness.condition("two", "Ready") == "True Running", f"moment {moments}"
        two = harness.get("two")
        assert two is not None
        assert harness.ours() == {two.uid: [harness.container_name("two")]}, f"moment {moments}"
        assert [instance.parent_uid for instance in harness.store.instances()] == [two.uid]
        assert harness.engine.exists("somebody-elses")
    assert moments > 25


def test_creates_run_in_parallel_but_never_two_for_one_object(world: World) -> None:
    harness = LoopHarness(world.store(), threads=4)
    try:
        for index in range(12):
            harness.apply(f"box-{index}")
        harness.settle()
        names = [call.config.name for call in harness.engine.calls if isinstance(call, CreateContainer)]
        assert len(names) == len(set(names)) == 12
    finally:
        harness.close()
