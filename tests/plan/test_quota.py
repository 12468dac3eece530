"""Quotas: who gets room, who waits for it, and what is said of it."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from controller.kinds.meta import StoredObject
from controller.kinds.planning.action import Action, PullImage
from tests.examples import examples
from tests.plan.history import TINY, History

NONE = {"disk": "0", "gpus": "0"}


def quota(
    history: History, name: str = "main", kind: str = "Quota", *, one: dict[str, Any] | None = None, **hard: Any
) -> None:
    history.put(kind, name, hard=hard, perSandbox=one or {})


def put_sandbox(history: History, name: str, memory: str = "64Mi", **spec: Any) -> None:
    history.apply(name, resources={"limits": {"cpu": "100m", "memory": memory, "pids": 16}}, **spec)


def message(history: History, name: str, type_: str) -> str:
    return next(condition["message"] for condition in history.status(name)["conditions"] if condition["type"] == type_)


def stored(history: History, kind: str = "Quota", name: str = "main") -> StoredObject:
    return history.object(kind, name)


def used(history: History) -> dict[str, Any]:
    """Return what is used of everything but stored objects."""
    return {name: value for name, value in stored(history).status["used"].items() if name != "objects"}


def running(history: History, *names: str) -> list[str]:
    return [name for name in names if history.condition(name, "Ready") == "True Running"]


def test_the_second_waits_until_the_first_is_gone(history: History) -> None:
    quota(history, memory="100Mi")
    put_sandbox(history, "a")
    history.settle()
    put_sandbox(history, "b")
    history.settle()
    assert running(history, "a", "b") == ["a"]
    assert history.condition("b", "Scheduled") == history.condition("b", "Ready") == "False QuotaExceeded"
    assert message(history, "b", "Scheduled") == "quota default/main: memory: 64Mi requested, 64Mi of 100Mi used"
    assert [event.reason for event in history.events_of("b")] == ["QuotaExceeded"]
    history.delete("a")
    history.settle()
    assert running(history, "b") == ["b"]
    assert history.condition("b", "Scheduled") == "True Assigned"
    document = {"cpu": "100m", "memory": "64Mi", "pids": "16", "sandboxes": "1", "objects": "2", **NONE}
    assert stored(history).status["used"] == document


def test_a_raised_quota_starts_what_waits(history: History) -> None:
    quota(history, memory="64Mi")
    put_sandbox(history, "a")
    put_sandbox(history, "b")
    history.settle()
    assert len(running(history, "a", "b")) == 1
    quota(history, memory="128Mi")
    history.settle()
    assert running(history, "a", "b") == ["a", "b"]


def test_a_lowered_quota_stops_nothing(history: History) -> None:
    quota(history, memory="128Mi")
    put_sandbox(history, "a")
    put_sandbox(history, "b")
    history.settle()
    calls = len(history.engine.calls)
    quota(history, memory="64Mi", sandboxes=1)
    history.settle()
    assert len(history.engine.calls) == calls
    (condition,) = stored(history).status["conditions"]
    assert (condition["type"], condition["status"]) == ("Exceeded", "True")
    assert condition["message"] == "memory 128Mi of 64Mi, sandboxes 2 of 1: nothing is stopped, nothing new is started"
    history.engine.kill(history.container_name("a"))
    history.settle()
    assert running(history, "a", "b") == ["a", "b"], "what is held is kept, also through a restart"


def test_suspended_gives_back_all_but_its_seat(history: History) -> None:
    quota(history, memory="64Mi", sandboxes=2)
    put_sandbox(history, "a")
    history.settle()
    put_sandbox(history, "a", runState="Suspended")
    history.settle()
    put_sandbox(history, "b")
    history.settle()
    assert running(history, "b") == ["b"]
    document = {"cpu": "100m", "memory": "64Mi", "pids": "16", "sandboxes": "2", "objects": "3", **NONE}
    assert stored(history).status["used"] == document
    put_sandbox(history, "c", runState="Suspended")
    history.settle()
    assert history.condition("c", "Scheduled") == "False QuotaExceeded"
    put_sandbox(history, "a")
    history.settle()
    assert history.condition("a", "Scheduled") == "False QuotaExceeded", "it comes back when there is room again"
    assert history.containers()[history.object("Sandbox", "a").uid], "its container is kept"
    history.delete("b")
    history.settle()
    assert running(history, "a") == ["a"]
    assert history.condition("c", "Suspended") == "True Suspended"


def test_priority_first_then_age_and_nobody_slips_past(history: History) -> None:
    quota(history, memory="128Mi")
    put_sandbox(history, "first", memory="100Mi")
    history.settle()
    for name, memory, priority in (("old", "64Mi", 0), ("big", "128Mi", 5), ("small", "16Mi", 5), ("young", "16Mi", 0)):
        history.clock.advance(1)
        put_sandbox(history, name, memory=memory, priority=priority)
    history.settle()
    names = ("old", "big", "small", "young")
    assert running(history, *names) == [], "28Mi are free, and kept for the biggest of the highest priority"
    assert "sandbox/default/big (priority 5) is ahead of it" in message(history, "small", "Scheduled")
    history.delete("first")
    history.settle()
    assert running(history, *names) == ["big"]
    history.delete("big")
    history.settle()
    assert running(history, *names) == ["old", "small", "young"]


def test_growth_that_does_not_fit_leaves_the_old_limit_in_force(history: History) -> None:
    quota(history, memory="128Mi")
    put_sandbox(history, "a")
    put_sandbox(history, "b")
    history.settle()
    before = history.engine.container(history.container_name("a")).id
    put_sandbox(history, "a", memory="96Mi")
    history.settle()
    assert history.condition("a", "Resized") == "False Deferred"
    assert history.condition("a", "Ready") == "True Running"
    assert message(history, "a", "Resized") == "quota default/main: memory: 32Mi requested, 128Mi of 128Mi used"
    assert history.engine.container(history.container_name("a")).limits.memory_bytes == 64 << 20
    put_sandbox(history, "b", memory="32Mi")
    history.settle()
    assert history.condition("a", "Resized") == "True InForce"
    held_by = history.engine.container(history.container_name("a"))
    assert (held_by.id, held_by.limits.memory_bytes) == (before, 96 << 20)


def test_a_new_image_and_more_memory_than_there_is_runs_with_the_old_limit(history: History) -> None:
    quota(history, memory="64Mi", sandboxes=3)
    put_sandbox(history, "a")
    history.settle()
    quota(history, memory="96Mi")
    put_sandbox(history, "b", memory="32Mi")
    history.settle()
    put_sandbox(history, "a", memory="96Mi", template={"image": "other:1"})
    history.settle()
    sandbox = history.engine.container(history.container_name("a"))
    assert (sandbox.image_id, sandbox.limits.memory_bytes) == (history.engine.images["other:1"], 64 << 20)
    assert history.condition("a", "Resized") == "False Deferred"


def test_what_shrinks_is_free_only_once_it_was_seen(history: History) -> None:
    quota(history, memory="128Mi")
    put_sandbox(history, "a", memory="128Mi")
    history.settle()
    put_sandbox(history, "a", memory="64Mi")
    plan = history.run_pass()
    assert [str(group.actions[0]).split()[0] for group in plan.groups] == ["update"]
    (row,) = history.instances()
    assert row.reserves.memory_bytes == 128 << 20
    history.settle()
    (row,) = history.instances()
    assert row.reserves.memory_bytes == 64 << 20


def test_the_host_is_bounded_even_unwritten_and_over_committed_on_demand(history: History) -> None:
    for name in ("a", "b"):
        put_sandbox(history, name, memory="9Gi")
    history.settle()
    assert running(history, "a", "b") == ["a"], "the fake host has 16Gi"
    assert "hostquota host: memory: 9Gi requested, 9Gi of 16Gi used" in message(history, "b", "Scheduled")
    quota(history, "host", "HostQuota", memory="32Gi")
    history.settle()
    assert running(history, "a", "b") == ["a", "b"]
    assert stored(history, "HostQuota", "host").status["hard"] == {"cpu": "64", "memory": "32Gi"}


def test_a_deleted_quota_bounds_nothing(history: History) -> None:
    quota(history, sandboxes=1)
    put_sandbox(history, "a")
    history.settle()
    put_sandbox(history, "b")
    history.settle()
    assert history.condition("b", "Scheduled") == "False QuotaExceeded"
    assert [instance.parent_name for instance in history.instances()] == ["a"], "no seat, no record"
    history.delete("main", "Quota")
    history.settle()
    assert running(history, "a", "b") == ["a", "b"]


def test_a_quota_that_is_settled_is_not_written_again(history: History) -> None:
    quota(history, memory="64Mi")
    put_sandbox(history, "a")
    put_sandbox(history, "b")
    history.settle()
    revision = history.revision
    history.run_pass()
    assert history.revision == revision


def test_what_the_engine_refuses_holds_nothing_and_blocks_nobody(history: History) -> None:
    quota(history, memory="64Mi", sandboxes=1, gpus=1)
    history.apply("stuck", resources={"limits": {"memory": "64Mi", "cpu": "100m", "gpus": 1}})
    history.settle()
    assert history.condition("stuck", "Degraded") == "True NoDeviceDriver"
    assert history.condition("stuck", "Scheduled") == "False NoDeviceDriver"
    assert set(used(history).values()) == {"0"}
    put_sandbox(history, "a")
    history.settle()
    assert running(history, "a") == ["a"]
    put_sandbox(history, "stuck")
    history.settle()
    assert history.condition("stuck", "Scheduled") == "False QuotaExceeded", "mended, it waits in its turn"
    history.delete("a")
    history.settle()
    assert running(history, "stuck") == ["stuck"]
    assert used(history) == {"cpu": "100m", "memory": "64Mi", "pids": "16", "sandboxes": "1", **NONE}


def test_what_waits_for_an_image_holds_its_place_only_while_it_is_fetched(history: History) -> None:
    quota(history, memory="64Mi", sandboxes=1)
    put_sandbox(history, "waits", template={"image": "gone:1"})
    pulls = []

    def seen(action: Action) -> None:
        if isinstance(action, PullImage):
            pulls.append(history.instances()[0].reserves.memory_bytes)

    history.before = seen
    history.settle(seconds=0)
    assert pulls == [64 << 20]
    assert history.condition("waits", "Scheduled") == "False ImagePullFailed"
    assert set(used(history).values()) == {"0"}
    put_sandbox(history, "a")
    history.settle(seconds=600)
    assert running(history, "a") == ["a"]
    assert history.condition("waits", "Scheduled") == "False QuotaExceeded", "its next try has no room now"
    history.engine.add_image("gone:1")
    history.delete("a")
    history.settle()
    assert running(history, "waits") == ["waits"]


def test_a_daemon_that_starts_anew_knows_what_holds_nothing(history: History) -> None:
    quota(history, memory="64Mi", sandboxes=1)
    history.apply("stuck", resources={"limits": {"memory": "64Mi", "cpu": "100m", "gpus": 1}})
    history.settle()
    calls = len(history.engine.calls)
    history.daemon()
    history.settle()
    assert len(history.engine.calls) == calls
    assert set(used(history).values()) == {"0"}
    history.delete("stuck")
    history.settle()
    assert not history.names()
    assert not history.containers()


TROUBLES = st.sampled_from(["image", "gpus"])
WISHES = st.lists(
    st.tuples(st.sampled_from(["32Mi", "64Mi", "96Mi"]), st.sampled_from([0, 0, 5]), st.none() | TROUBLES), max_size=7
)


@settings(max_examples=examples(40))
@given(wishes=WISHES)
def test_what_can_not_start_changes_nothing_for_the_others(wishes: list[tuple[str, int, str]]) -> None:
    """With and without those among them that are known not to start, and are older, the same sandboxes run."""
    wishes = sorted(wishes, key=lambda wish: wish[2] is None)
    outcomes = []
    for with_trouble in (True, False):
        history = History()
        quota(history, memory="128Mi", sandboxes=3)
        for number, (memory, priority, trouble) in enumerate(wishes):
            history.clock.advance(1)
            limits = {"cpu": "100m", "memory": memory, "pids": 16, "gpus": int(trouble == "gpus")}
            template = {"image": "gone:1" if trouble == "image" else TINY}
            if with_trouble or not trouble:
                name = f"web-{number}"
                history.apply(name, resources={"limits": limits}, priority=priority, template=template)
                if trouble:
                    history.settle(seconds=0)
        history.settle(seconds=20)
        outcomes.append(sorted(running(history, *history.names())))
        names = {name for name in history.names() if wishes[int(name.removeprefix("web-"))][2]}
        records = [instance for instance in history.instances() if instance.parent_name in names]
        assert {(instance.role, instance.reserves.memory_bytes) for instance in records} <= {("refused", 0)}
    assert outcomes[0] == outcomes[1]
