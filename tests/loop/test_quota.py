"""Quotas through the loop: who gets room, who waits for it, and that no commit ever holds more than is allowed."""

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from controller.kinds.meta import StoredObject
from controller.kinds.planning.action import Action, PullImage
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.quota import Amount, Ceiling
from controller.kinds.runtime.container import Limits
from controller.plan.capacity.reservations import reserved_amounts
from controller.ports import Conflict
from controller.service import errors
from controller.service.explain.diff import Diff, Difference
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World, both_stores
from tests.examples import examples
from tests.loop.harness import TINY, Crash, LoopHarness

NONE = {"disk": "0", "gpus": "0"}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store())
    yield made
    made.close()


def quota(
    house: LoopHarness, name: str = "main", kind: str = "Quota", *, one: dict[str, Any] | None = None, **hard: Any
) -> None:
    spec = {"hard": hard, "perSandbox": one or {}}
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    house.services.apply.apply([Source("test", json.dumps(document))])


def box(house: LoopHarness, name: str, memory: str = "64Mi", **spec: Any) -> None:
    house.apply(name, resources={"limits": {"cpu": "100m", "memory": memory, "pids": 16}}, **spec)


def message(house: LoopHarness, name: str, type_: str) -> str:
    found = house.get(name)
    assert found is not None
    return next(each["message"] for each in found.status["conditions"] if each["type"] == type_)


def stored(house: LoopHarness, kind: str = "Quota", name: str = "main") -> StoredObject:
    found = house.store.get(kind, "default" if kind == "Quota" else "", name)
    assert found is not None
    return found


def running(house: LoopHarness, *names: str) -> list[str]:
    return [name for name in names if house.condition(name, "Ready") == "True Running"]


def test_the_second_waits_until_the_first_is_gone(house: LoopHarness) -> None:
    quota(house, memory="100Mi")
    box(house, "a")
    house.settle()
    box(house, "b")
    house.settle()
    assert running(house, "a", "b") == ["a"]
    assert house.condition("b", "Scheduled") == house.condition("b", "Ready") == "False QuotaExceeded"
    assert message(house, "b", "Scheduled") == "quota default/main: memory: 64Mi requested, 64Mi of 100Mi used"
    assert [each.reason for each in house.store.events(name="b")] == ["QuotaExceeded"]
    house.delete("a")
    house.settle()
    assert running(house, "b") == ["b"]
    assert house.condition("b", "Scheduled") == "True Assigned"
    wanted = {"cpu": "100m", "memory": "64Mi", "pids": "16", "sandboxes": "1", "objects": "2", **NONE}
    assert stored(house).status["used"] == wanted


def test_a_raised_quota_starts_what_waits(house: LoopHarness) -> None:
    quota(house, memory="64Mi")
    box(house, "a")
    box(house, "b")
    house.settle()
    assert len(running(house, "a", "b")) == 1
    quota(house, memory="128Mi")
    house.settle()
    assert running(house, "a", "b") == ["a", "b"]


def test_a_lowered_quota_stops_nothing(house: LoopHarness) -> None:
    quota(house, memory="128Mi")
    box(house, "a")
    box(house, "b")
    house.settle()
    calls = len(house.engine.calls)
    quota(house, memory="64Mi", sandboxes=1)
    house.settle()
    assert len(house.engine.calls) == calls
    (told,) = stored(house).status["conditions"]
    assert (told["type"], told["status"]) == ("Exceeded", "True")
    assert told["message"] == "memory 128Mi of 64Mi, sandboxes 2 of 1: nothing is stopped, nothing new is started"
    house.engine.kill(house.container_name("a"))
    house.settle()
    assert running(house, "a", "b") == ["a", "b"], "what is held is kept, also through a restart"


def test_suspended_gives_back_all_but_its_seat(house: LoopHarness) -> None:
    quota(house, memory="64Mi", sandboxes=2)
    box(house, "a")
    house.settle()
    box(house, "a", runState="Suspended")
    house.settle()
    box(house, "b")
    house.settle()
    assert running(house, "b") == ["b"]
    wanted = {"cpu": "100m", "memory": "64Mi", "pids": "16", "sandboxes": "2", "objects": "3", **NONE}
    assert stored(house).status["used"] == wanted
    box(house, "c", runState="Suspended")
    house.settle()
    assert house.condition("c", "Scheduled") == "False QuotaExceeded"
    box(house, "a")
    house.settle()
    assert house.condition("a", "Scheduled") == "False QuotaExceeded", "it comes back when there is room again"
    assert house.ours()[house.get("a").uid], "its container is kept"  # type: ignore[union-attr]
    house.delete("b")
    house.settle()
    assert running(house, "a") == ["a"]
    assert house.condition("c", "Suspended") == "True Suspended"


def test_priority_first_then_age_and_nobody_slips_past(house: LoopHarness) -> None:
    quota(house, memory="128Mi")
    box(house, "first", memory="100Mi")
    house.settle()
    for name, memory, priority in (("old", "64Mi", 0), ("big", "128Mi", 5), ("small", "16Mi", 5), ("young", "16Mi", 0)):
        house.clock.advance(1)
        box(house, name, memory=memory, priority=priority)
    house.settle()
    names = ("old", "big", "small", "young")
    assert running(house, *names) == [], "28Mi are free, and kept for the biggest of the highest priority"
    assert "sandbox/default/big (priority 5) is ahead of it" in message(house, "small", "Scheduled")
    house.delete("first")
    house.settle()
    assert running(house, *names) == ["big"]
    house.delete("big")
    house.settle()
    assert running(house, *names) == ["old", "small", "young"]


def test_what_can_never_fit_is_refused_and_holds_up_nobody(house: LoopHarness) -> None:
    quota(house, memory="256Mi", one={"memory": "128Mi"})
    with pytest.raises(errors.Invalid) as refused:
        box(house, "huge", memory="200Mi")
    assert "spec.resources.limits: can never fit quota default/main" in str(refused.value)
    assert "200Mi requested, 128Mi is the maximum for one sandbox" in str(refused.value)
    box(house, "a", memory="128Mi", runState="Suspended")
    house.settle()
    quota(house, memory="100Mi", one={"memory": "100Mi"})
    house.settle()
    with house.store.transaction() as transaction:
        found = transaction.get("Sandbox", "default", "a")
        assert found is not None
        transaction.put(replace(found, spec={**found.spec, "runState": "Running"}, generation=found.generation + 1))
    box(house, "b")
    house.settle()
    assert house.condition("a", "Scheduled") == "False QuotaExceeded"
    assert running(house, "b") == ["b"]


def test_growth_that_does_not_fit_leaves_the_old_limit_in_force(house: LoopHarness) -> None:
    quota(house, memory="128Mi")
    box(house, "a")
    box(house, "b")
    house.settle()
    before = house.engine.box(house.container_name("a")).id
    box(house, "a", memory="96Mi")
    house.settle()
    assert house.condition("a", "Resized") == "False Deferred"
    assert house.condition("a", "Ready") == "True Running"
    assert message(house, "a", "Resized") == "quota default/main: memory: 32Mi requested, 128Mi of 128Mi used"
    assert house.engine.box(house.container_name("a")).limits.memory_bytes == 64 << 20
    box(house, "b", memory="32Mi")
    house.settle()
    assert house.condition("a", "Resized") == "True InForce"
    held_by = house.engine.box(house.container_name("a"))
    assert (held_by.id, held_by.limits.memory_bytes) == (before, 96 << 20)


def test_a_new_image_and_more_memory_than_there_is_runs_with_the_old_limit(house: LoopHarness) -> None:
    quota(house, memory="64Mi", sandboxes=3)
    box(house, "a")
    house.settle()
    quota(house, memory="96Mi")
    box(house, "b", memory="32Mi")
    house.settle()
    box(house, "a", memory="96Mi", template={"image": "other:1"})
    house.settle()
    made = house.engine.box(house.container_name("a"))
    assert (made.image_id, made.limits.memory_bytes) == (house.engine.images["other:1"], 64 << 20)
    assert house.condition("a", "Resized") == "False Deferred"


def test_what_shrinks_is_free_only_once_it_was_seen(house: LoopHarness) -> None:
    quota(house, memory="128Mi")
    box(house, "a", memory="128Mi")
    house.settle()
    box(house, "a", memory="64Mi")
    decided = house.turn.run()
    assert [str(each.actions[0]).split()[0] for each in decided.groups] == ["update"]
    (row,) = house.store.instances()
    assert row.reserves.memory_bytes == 128 << 20
    house.settle()
    (row,) = house.store.instances()
    assert row.reserves.memory_bytes == 64 << 20


def test_the_host_is_bounded_even_unwritten_and_over_committed_on_demand(house: LoopHarness) -> None:
    for name in ("a", "b"):
        box(house, name, memory="9Gi")
    house.settle()
    assert running(house, "a", "b") == ["a"], "the fake host has 16Gi"
    assert "hostquota host: memory: 9Gi requested, 9Gi of 16Gi used" in message(house, "b", "Scheduled")
    quota(house, "host", "HostQuota", memory="32Gi")
    house.settle()
    assert running(house, "a", "b") == ["a", "b"]
    assert stored(house, "HostQuota", "host").status["hard"] == {"cpu": "64", "memory": "32Gi"}


def test_a_deleted_quota_bounds_nothing(house: LoopHarness) -> None:
    quota(house, sandboxes=1)
    box(house, "a")
    house.settle()
    box(house, "b")
    house.settle()
    assert house.condition("b", "Scheduled") == "False QuotaExceeded"
    assert [each.parent_name for each in house.store.instances()] == ["a"], "no seat, no record"
    house.delete("main", "quota")
    house.settle()
    assert running(house, "a", "b") == ["a", "b"]


def test_a_quota_that_is_settled_is_not_written_again(house: LoopHarness) -> None:
    quota(house, memory="64Mi")
    box(house, "a")
    box(house, "b")
    house.settle()
    revision = house.store.revision()
    house.run_pass()
    assert house.store.revision() == revision


def planned(house: LoopHarness, text: str, *, delete: bool = False) -> Difference:
    house.run_pass()
    differ = Diff(apply=house.services.apply, store=house.store, clock=house.clock, snapshot=lambda: house.turn.last)
    (found,) = differ.diff([Source("test", text)], plan=True, delete=delete)
    return found


def moved(found: Difference) -> dict[str, tuple[tuple[str, str, str, str], ...]]:
    return {each.quota: each.resources for each in found.quotas if each.namespace}


def test_a_plan_tells_the_quota_after_it(house: LoopHarness) -> None:
    quota(house, memory="100Mi", sandboxes=2)
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": "a"}}
    text = json.dumps(document | {"spec": {"template": {"image": TINY}, "resources": {"limits": {"memory": "64Mi"}}}})
    assert moved(planned(house, text)) == {
        "quota default/main": (("memory", "0", "64Mi", "100Mi"), ("sandboxes", "0", "1", "2"))
    }
    box(house, "a")
    house.settle()
    (waits,) = planned(house, text.replace('"a"', '"b"')).forecasts
    assert (waits.actions, waits.reason) == ((), "QuotaExceeded")
    gone = planned(house, text, delete=True)
    assert moved(gone)["quota default/main"][0] == ("memory", "64Mi", "0", "100Mi")


@both_stores
def test_a_hundred_for_the_last_place(world: World) -> None:
    """All at once, by as many threads: exactly one gets it."""
    house = LoopHarness(world.store())
    try:
        quota(house, sandboxes=1)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda index: box(house, f"box-{index}"), range(100)))
        house.settle()
        assert len(running(house, *house.names())) == 1
        assert len(house.store.instances()) == 1
    finally:
        house.close()


@both_stores
def test_a_hundred_writers_for_the_last_place(world: World) -> None:
    """Planners that know nothing of each other: the store lets one of them have it."""
    house = LoopHarness(world.store(wait_seconds=30))
    try:
        for index in range(100):
            box(house, f"box-{index}", runState="Suspended")
        boxes = house.store.list("Sandbox")[0]
        most = Amount(100, 64 << 20, 16, 1)
        together = threading.Barrier(4)

        def take(obj: StoredObject) -> bool:
            row = Instance(obj.name, obj.uid, "Sandbox", "default", obj.name, "sandbox", Limits(100, 64 << 20, 16), 0.0)
            try:
                house.store.record(Writes(instances=(row,), ceilings=(Ceiling("default", most), Ceiling("", most))))
            except Conflict:
                return False
            return True

        def some(objects: list[StoredObject]) -> int:
            together.wait(30)
            return sum(take(each) for each in objects)

        with ThreadPoolExecutor(4) as pool:
            won = sum(pool.map(some, [list(boxes[at::4]) for at in range(4)]))
        assert won == len(house.store.instances()) == 1
    finally:
        house.close()


STEPS = st.one_of(
    st.tuples(
        st.just("apply"),
        st.sampled_from("abcd"),
        st.sampled_from(["32Mi", "64Mi", "96Mi"]),
        st.sampled_from(["Running", "Running", "Suspended", "Paused"]),
        st.sampled_from([0, 0, 5]),
    ),
    st.tuples(st.just("delete"), st.sampled_from("abcd")),
    st.tuples(st.just("turn")),
    st.tuples(st.just("turn")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("kill"), st.sampled_from("abcd")),
    st.tuples(st.just("crash"), st.integers(1, 6), st.booleans()),
)
HARD = Amount(1 << 40, 128 << 20, 1 << 40, 3)


def check(house: LoopHarness) -> None:
    """Of what is committed, and of what really runs."""
    rows = house.store.instances()
    total = reserved_amounts(rows)[""]
    assert total.within(HARD), total
    reserved = {each.parent_uid: each.reserves.memory_bytes for each in rows}
    for uid, names in house.ours().items():
        for name in names:
            found = house.engine.box(name)
            if str(found.state) in ("running", "paused"):
                assert found.limits.memory_bytes <= reserved[uid], "what runs is reserved"


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(steps=st.lists(STEPS, max_size=14))
def test_no_history_ever_holds_more_than_is_allowed(world: World, steps: list[tuple[Any, ...]]) -> None:
    store = world.store()
    house = LoopHarness(store)
    house.uids = store.revision() * 100
    try:
        _clear(house)
        quota(house, memory="128Mi", sandboxes=3)
        for step in steps:
            _do(house, *step)
            check(house)
        house.settle()
        check(house)
        _clear(house)
        assert store.instances() == []
    finally:
        house.close()
        store.close()


def _clear(house: LoopHarness) -> None:
    for name in house.names():
        house.delete(name)
    house.settle()


def _do(house: LoopHarness, what: str, *how: Any) -> None:
    if what == "apply":
        name, memory, state, priority = how
        spec = {"runState": state, "priority": priority, "lifecycle": {"shutdownGracePeriodSeconds": 0}}
        with contextlib.suppress(errors.Conflict):  # it is being deleted
            box(house, name, memory=memory, **spec)
    elif what == "delete" and house.get(how[0]) is not None:
        house.delete(how[0])
    elif what == "turn":
        house.run_pass()
    elif what == "settle":
        house.settle()
    elif what == "kill" and house.get(how[0]) is not None and house.ours().get(house.get(how[0]).uid):  # type: ignore[union-attr]
        house.engine.kill(house.container_name(how[0]))
    elif what == "crash":
        house.fuse.blow_at, house.fuse.after = house.fuse.steps + how[0], how[1]
        try:
            house.settle()
        except Crash:
            house.daemon()
        else:
            house.fuse.blow_at = None


def used(house: LoopHarness) -> dict[str, Any]:
    """Return what is used of everything but stored objects."""
    return {name: value for name, value in stored(house).status["used"].items() if name != "objects"}


def test_what_the_engine_refuses_holds_nothing_and_blocks_nobody(house: LoopHarness) -> None:
    quota(house, memory="64Mi", sandboxes=1, gpus=1)
    house.apply("stuck", resources={"limits": {"memory": "64Mi", "cpu": "100m", "gpus": 1}})
    house.settle()
    assert house.condition("stuck", "Degraded") == "True NoDeviceDriver"
    assert house.condition("stuck", "Scheduled") == "False NoDeviceDriver"
    assert set(used(house).values()) == {"0"}
    box(house, "a")
    house.settle()
    assert running(house, "a") == ["a"]
    box(house, "stuck")
    house.settle()
    assert house.condition("stuck", "Scheduled") == "False QuotaExceeded", "mended, it waits in its turn"
    house.delete("a")
    house.settle()
    assert running(house, "stuck") == ["stuck"]
    assert used(house) == {"cpu": "100m", "memory": "64Mi", "pids": "16", "sandboxes": "1", **NONE}


def test_what_waits_for_an_image_holds_its_place_only_while_it_is_fetched(house: LoopHarness) -> None:
    quota(house, memory="64Mi", sandboxes=1)
    box(house, "waits", template={"image": "gone:1"})
    pulls = []

    def seen(action: Action) -> None:
        if isinstance(action, PullImage):
            pulls.append(house.store.instances()[0].reserves.memory_bytes)

    house.before = seen
    house.settle(seconds=0)
    assert pulls == [64 << 20]
    assert house.condition("waits", "Scheduled") == "False ImagePullFailed"
    assert set(used(house).values()) == {"0"}
    box(house, "a")
    house.settle(seconds=600)
    assert running(house, "a") == ["a"]
    assert house.condition("waits", "Scheduled") == "False QuotaExceeded", "its next try has no room now"
    house.engine.add_image("gone:1")
    house.delete("a")
    house.settle()
    assert running(house, "waits") == ["waits"]


def test_a_daemon_that_starts_anew_knows_what_holds_nothing(house: LoopHarness) -> None:
    quota(house, memory="64Mi", sandboxes=1)
    house.apply("stuck", resources={"limits": {"memory": "64Mi", "cpu": "100m", "gpus": 1}})
    house.settle()
    calls = len(house.engine.calls)
    house.daemon()
    house.settle()
    assert len(house.engine.calls) == calls
    assert set(used(house).values()) == {"0"}
    house.delete("stuck")
    house.settle()
    assert not house.names()
    assert not house.ours()


TROUBLES = st.sampled_from(["image", "gpus"])
WISHES = st.lists(
    st.tuples(st.sampled_from(["32Mi", "64Mi", "96Mi"]), st.sampled_from([0, 0, 5]), st.none() | TROUBLES), max_size=7
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(wishes=WISHES)
def test_what_can_not_start_changes_nothing_for_the_others(world: World, wishes: list[tuple[str, int, str]]) -> None:
    """With and without those among them that are known not to start, and are older, the same sandboxes run."""
    wishes = sorted(wishes, key=lambda each: each[2] is None)
    outcomes = []
    for with_trouble in (True, False):
        house = LoopHarness(world.store())
        house.uids = house.store.revision() * 100
        try:
            _clear(house)
            quota(house, memory="128Mi", sandboxes=3)
            for number, (memory, priority, trouble) in enumerate(wishes):
                house.clock.advance(1)
                limits = {"cpu": "100m", "memory": memory, "pids": 16, "gpus": int(trouble == "gpus")}
                template = {"image": "gone:1" if trouble == "image" else TINY}
                if with_trouble or not trouble:
                    name = f"box-{number}"
                    house.apply(name, resources={"limits": limits}, priority=priority, template=template)
                    if trouble:
                        house.settle(seconds=0)
            house.settle(seconds=20)
            outcomes.append(sorted(running(house, *house.names())))
            names = {name for name in house.names() if wishes[int(name.removeprefix("box-"))][2]}
            held_by = [each for each in house.store.instances() if each.parent_name in names]
            assert {(each.role, each.reserves.memory_bytes) for each in held_by} <= {("refused", 0)}
            _clear(house)
        finally:
            house.close()
            house.store.close()
    assert outcomes[0] == outcomes[1]
