"""Passes over a real store and the fake engine: what becomes of a sandbox, and of a daemon that dies at any step."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import CreateContainer
from controller.ports import StoreError
from tests.contract.store_backends import Backend
from tests.instance_states import changed_state
from tests.loop.harness import LoopHarness, killed_at_each_step


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def test_settled_means_no_more_calls_and_no_more_writes(harness: LoopHarness) -> None:
    for index in range(5):
        harness.apply(f"web-{index}")
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


def test_what_the_engine_still_does_after_a_deletion_is_cleaned_up(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.run_pass()
    harness.delete("web")
    harness.settle()
    assert harness.names() == []
    assert harness.ours() == {}
    assert harness.store.instances() == []


def test_a_moved_on_instance_is_read_again(harness: LoopHarness) -> None:
    """Another process changed the record: the pass is planned again on what is true now."""
    from dataclasses import replace

    from controller.kinds.planning.plan import Writes
    from controller.ports import Conflict

    harness.apply("web")
    harness.settle()
    (instance,) = harness.store.instances()
    harness.store.record(Writes(instances=(replace(instance, state=changed_state(instance.state, restarts=7)),)))
    harness.engine.kill(harness.container_name("web"))
    with pytest.raises(Conflict):
        harness.run_pass()
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.store.instances()[0].state.runs.restarts == 8


def deeds_of(harness: LoopHarness) -> tuple[Callable[[], object], ...]:
    """Return a life in which everything happens once: what a user or the host does, and what comes of it."""

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


def test_a_daemon_killed_at_any_step_is_followed_by_one_that_finishes(backend: Backend, harness: LoopHarness) -> None:
    """From all that is there at each step of a life, it goes on with the next daemon."""
    harness.engine.add_foreign("somebody-elses")
    deeds, moments = deeds_of(harness), 0
    for number in killed_at_each_step(harness, backend.path(), *deeds):
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


def test_creates_run_in_parallel_but_never_two_for_one_object(backend: Backend) -> None:
    harness = LoopHarness(backend.store(), threads=4)
    try:
        for index in range(12):
            harness.apply(f"web-{index}")
        harness.settle()
        names = [call.config.name for call in harness.engine.calls if isinstance(call, CreateContainer)]
        assert len(names) == len(set(names)) == 12
    finally:
        harness.close()
