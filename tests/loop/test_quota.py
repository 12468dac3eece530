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
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.quota import Amount, Ceiling
from controller.kinds.runtime.container import Limits
from controller.plan.capacity.reservations import reserved_amounts
from controller.ports import Conflict
from controller.service import errors
from controller.service.explain.diff import Diff, Difference
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend, both_stores
from tests.examples import examples
from tests.loop.harness import TINY, Crash, LoopHarness


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def put_sandbox(harness: LoopHarness, name: str, memory: str = "64Mi", **spec: Any) -> None:
    harness.apply(name, resources={"limits": {"cpu": "100m", "memory": memory, "pids": 16}}, **spec)


def quota(
    harness: LoopHarness, name: str = "main", kind: str = "Quota", *, one: dict[str, Any] | None = None, **hard: Any
) -> None:
    spec = {"hard": hard, "perSandbox": one or {}}
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    harness.services.apply.apply([Source("test", json.dumps(document))])


def running(harness: LoopHarness, *names: str) -> list[str]:
    return [name for name in names if harness.condition(name, "Ready") == "True Running"]


def test_what_can_never_fit_is_refused_and_holds_up_nobody(harness: LoopHarness) -> None:
    quota(harness, memory="256Mi", one={"memory": "128Mi"})
    with pytest.raises(errors.Invalid) as refusal:
        put_sandbox(harness, "huge", memory="200Mi")
    assert "spec.resources.limits: can never fit quota default/main" in str(refusal.value)
    assert "200Mi requested, 128Mi is the maximum for one sandbox" in str(refusal.value)
    put_sandbox(harness, "a", memory="128Mi", runState="Suspended")
    harness.settle()
    quota(harness, memory="100Mi", one={"memory": "100Mi"})
    harness.settle()
    with harness.store.transaction() as transaction:
        sandbox = transaction.get("Sandbox", "default", "a")
        assert sandbox is not None
        transaction.put(
            replace(sandbox, spec={**sandbox.spec, "runState": "Running"}, generation=sandbox.generation + 1)
        )
    put_sandbox(harness, "b")
    harness.settle()
    assert harness.condition("a", "Scheduled") == "False QuotaExceeded"
    assert running(harness, "b") == ["b"]


def planned(harness: LoopHarness, text: str, *, delete: bool = False) -> Difference:
    harness.run_pass()
    differ = Diff(
        apply=harness.services.apply,
        store=harness.store,
        clock=harness.clock,
        snapshot=lambda: harness.reconcile_pass.last,
    )
    (difference,) = differ.diff([Source("test", text)], plan=True, delete=delete)
    return difference


def moved(found: Difference) -> dict[str, tuple[tuple[str, str, str, str], ...]]:
    return {movement.quota: movement.resources for movement in found.quotas if movement.namespace}


def test_a_plan_tells_the_quota_after_it(harness: LoopHarness) -> None:
    quota(harness, memory="100Mi", sandboxes=2)
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": "a"}}
    text = json.dumps(document | {"spec": {"template": {"image": TINY}, "resources": {"limits": {"memory": "64Mi"}}}})
    assert moved(planned(harness, text)) == {
        "quota default/main": (("memory", "0", "64Mi", "100Mi"), ("sandboxes", "0", "1", "2"))
    }
    put_sandbox(harness, "a")
    harness.settle()
    (waits,) = planned(harness, text.replace('"a"', '"b"')).forecasts
    assert (waits.actions, waits.reason) == ((), "QuotaExceeded")
    difference = planned(harness, text, delete=True)
    assert moved(difference)["quota default/main"][0] == ("memory", "64Mi", "0", "100Mi")


@both_stores
def test_a_hundred_for_the_last_place(backend: Backend) -> None:
    """All at once, by as many threads: exactly one gets it."""
    harness = LoopHarness(backend.store())
    try:
        quota(harness, sandboxes=1)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda index: put_sandbox(harness, f"web-{index}"), range(100)))
        harness.settle()
        assert len(running(harness, *harness.names())) == 1
        assert len(harness.store.instances()) == 1
    finally:
        harness.close()


@both_stores
def test_a_hundred_writers_for_the_last_place(backend: Backend) -> None:
    """Planners that know nothing of each other: the store lets one of them have it."""
    harness = LoopHarness(backend.store(wait_seconds=30))
    try:
        for index in range(100):
            put_sandbox(harness, f"web-{index}", runState="Suspended")
        sandboxes = harness.store.list("Sandbox")[0]
        most = Amount(100, 64 << 20, 16, 1)
        together = threading.Barrier(4)

        def take(obj: StoredObject) -> bool:
            row = Instance(obj.name, obj.uid, "Sandbox", "default", obj.name, "sandbox", Limits(100, 64 << 20, 16), 0.0)
            try:
                harness.store.record(Writes(instances=(row,), ceilings=(Ceiling("default", most), Ceiling("", most))))
            except Conflict:
                return False
            return True

        def some(objects: list[StoredObject]) -> int:
            together.wait(30)
            return sum(take(entry) for entry in objects)

        with ThreadPoolExecutor(4) as pool:
            won = sum(pool.map(some, [list(sandboxes[at::4]) for at in range(4)]))
        assert won == len(harness.store.instances()) == 1
    finally:
        harness.close()


STEPS = st.one_of(
    st.tuples(
        st.just("apply"),
        st.sampled_from("abcd"),
        st.sampled_from(["32Mi", "64Mi", "96Mi"]),
        st.sampled_from(["Running", "Running", "Suspended", "Paused"]),
        st.sampled_from([0, 0, 5]),
    ),
    st.tuples(st.just("delete"), st.sampled_from("abcd")),
    st.tuples(st.just("pass")),
    st.tuples(st.just("pass")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("kill"), st.sampled_from("abcd")),
    st.tuples(st.just("crash"), st.integers(1, 6), st.booleans()),
)
HARD = Amount(1 << 40, 128 << 20, 1 << 40, 3)


def check(harness: LoopHarness) -> None:
    """Of what is committed, and of what really runs."""
    rows = harness.store.instances()
    total = reserved_amounts(rows)[""]
    assert total.within(HARD), total
    reserved = {row.parent_uid: row.reserves.memory_bytes for row in rows}
    for uid, names in harness.ours().items():
        for name in names:
            sandbox = harness.engine.container(name)
            if str(sandbox.state) in ("running", "paused"):
                assert sandbox.limits.memory_bytes <= reserved[uid], "what runs is reserved"


@pytest.mark.timeout(600)
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(steps=st.lists(STEPS, max_size=14))
def test_no_history_ever_holds_more_than_is_allowed(backend: Backend, steps: list[tuple[Any, ...]]) -> None:
    store = backend.store()
    harness = LoopHarness(store)
    harness.uids = store.revision() * 100
    try:
        _clear(harness)
        quota(harness, memory="128Mi", sandboxes=3)
        for step in steps:
            _do(harness, *step)
            check(harness)
        harness.settle()
        check(harness)
        _clear(harness)
        assert store.instances() == []
    finally:
        harness.close()
        store.close()


def _clear(harness: LoopHarness) -> None:
    for name in harness.names():
        harness.delete(name)
    harness.settle()


def _do(harness: LoopHarness, what: str, *how: Any) -> None:
    if what == "apply":
        name, memory, state, priority = how
        spec = {"runState": state, "priority": priority, "lifecycle": {"shutdownGracePeriodSeconds": 0}}
        with contextlib.suppress(errors.Conflict):  # it is being deleted
            put_sandbox(harness, name, memory=memory, **spec)
    elif what == "delete" and harness.get(how[0]) is not None:
        harness.delete(how[0])
    elif what == "pass":
        harness.run_pass()
    elif what == "settle":
        harness.settle()
    elif what == "kill" and harness.get(how[0]) is not None and harness.ours().get(harness.get(how[0]).uid):  # type: ignore[union-attr]
        harness.engine.kill(harness.container_name(how[0]))
    elif what == "crash":
        harness.fuse.blow_at, harness.fuse.after = harness.fuse.steps + how[0], how[1]
        try:
            harness.settle()
        except Crash:
            harness.daemon()
        else:
            harness.fuse.blow_at = None
