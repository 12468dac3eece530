"""Warm pools: filled, claimed, refilled, replaced, given up."""

from types import SimpleNamespace
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.planning.action import PullImage, RenameContainer
from controller.kinds.planning.instance_state import ClaimRecord, InstanceState
from controller.kinds.planning.plan import Plan
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.plan.base.memo import Memo, Seen
from controller.plan.base.reconcile_context import Decision
from controller.plan.pool.claim_candidates import ready_key
from controller.plan.pool.launch import defer_renames
from controller.policy.levels.levels import Policy
from tests.plan.history import TINY, History


def filled(history: History, replicas: int = 2, **spec: Any) -> History:
    history.put("SandboxTemplate", "t", image=TINY, command=["sleep", "1000000"])
    apply_pool(history, warmReplicas=replicas, **spec)
    history.settle()
    return history


def pool(history: History, name: str = "warm") -> StoredObject:
    return history.object("SandboxPool", name)


def counts(history: History) -> tuple[int, int, int]:
    status = pool(history).status
    return status["replicas"], status["readyReplicas"], status["claimedReplicas"]


def sandboxes(history: History) -> list[str]:
    """Names of all our containers."""
    return sorted(name for names in history.containers().values() for name in names)


def launch(history: History, name: str) -> str:
    status = history.status(name)
    return f"{status['launchType']}: {status['launchReason']}"


def quota(history: History, **hard: Any) -> None:
    history.put("Quota", "q", hard=hard)


def apply_pool(history: History, name: str = "warm", template: str = "t", **spec: Any) -> None:
    history.put("SandboxPool", name, templateRef={"name": template}, **spec)


def test_a_pool_is_filled_and_says_so(history: History) -> None:
    filled(history, 3)
    assert counts(history) == (3, 3, 0)
    assert len(sandboxes(history)) == 3
    assert all(name.startswith("pdk-warm-") for name in sandboxes(history))
    [ready] = [condition for condition in pool(history).status["conditions"] if condition["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("True", "Filled")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"poolPolicy": "Never"}, "poolPolicy is Never"),
        ({"templateRef": {"name": "other"}}, "there is no SandboxPool of template `other`"),
    ],
)
def test_a_cold_start_says_why(history: History, spec: dict[str, Any], why: str) -> None:
    filled(history)
    history.put("SandboxTemplate", "other", image=TINY, command=["sleep", "1000000"])
    requested = dict(spec)
    history.refer("a", requested.pop("templateRef", {"name": "t"})["name"], **requested)
    history.settle()
    assert launch(history, "a") == f"Cold: {why}"
    assert counts(history)[2] == 0


def test_scaled_down_and_to_zero(history: History) -> None:
    filled(history, 3)
    apply_pool(history, warmReplicas=1)
    history.settle()
    assert counts(history) == (1, 1, 0)
    assert len(sandboxes(history)) == 1
    apply_pool(history, warmReplicas=0)
    history.settle()
    assert sandboxes(history) == []
    assert list(history.instances()) == []


def test_a_changed_template_replaces_members_without_running_dry(history: History) -> None:
    filled(history, 2)
    old = set(sandboxes(history))
    history.put("SandboxTemplate", "t", image=TINY, command=["sleep", "2000000"])
    least = 2
    for _ in range(40):
        plan = history.run_pass()
        running = [
            entry for container in history.engine.observe().containers.values() for entry in container if entry.pid
        ]
        least = min(least, len(running))
        if not (plan.groups or plan.writes or history.has_results()):
            if plan.next_wake is None or plan.next_wake > history.clock.now() + 60:
                break
            history.clock.advance(plan.next_wake - history.clock.now())
    assert least == 2
    assert counts(history) == (2, 2, 0)
    assert not old & set(sandboxes(history))


def test_aged_members_are_replaced(history: History) -> None:
    filled(history, 1, maxAgeSeconds=60)
    [old] = sandboxes(history)
    history.clock.advance(61)
    history.run_pass()
    history.run_pass()
    for _ in range(20):
        history.run_pass()
    history.settle(seconds=30)
    assert old not in sandboxes(history)
    assert counts(history) == (1, 1, 0)


def test_warm_members_make_room_for_what_requires_the_pool(history: History) -> None:
    filled(history, 2, maxReplicas=2)
    for container in history.engine.observe().containers.values():  # none is ready: all are frozen by hand
        history.engine.pause(container[0].name)
    history.run_pass()
    history.refer("a", "t", poolPolicy="Require")
    history.settle()
    assert history.condition("a", "Ready") == "True Running"
    assert counts(history)[2] == 1
    assert len(sandboxes(history)) == 2


def test_a_member_that_fails_is_shown(history: History) -> None:
    history.put("SandboxTemplate", "t", image="missing:1")
    apply_pool(history)
    for _ in range(6):
        history.run_pass()
    conditions = {condition["type"]: condition for condition in pool(history).status["conditions"]}
    assert conditions["Degraded"]["status"] == "True"
    assert "missing:1" in conditions["Degraded"]["message"]
    assert conditions["Ready"]["reason"] == "Filling"


def test_a_pool_without_a_template_says_so(history: History) -> None:
    apply_pool(history, template="none")
    history.settle()
    conditions = {condition["type"]: condition for condition in pool(history).status["conditions"]}
    assert conditions["Accepted"]["status"] == "False"
    assert "there is no SandboxTemplate `none`" in conditions["Accepted"]["message"]


def test_warm_members_give_way_to_a_sandbox_that_waits_for_room(history: History) -> None:
    quota(history, memory="1Gi")
    filled(history, 2)  # 512Mi each
    history.put("SandboxTemplate", "own", image=TINY, command=["sleep", "1000000"])
    history.refer("a", "own")
    history.settle()
    assert history.condition("a", "Ready") == "True Running"
    assert counts(history)[1] == 1
    assert len(sandboxes(history)) == 2
    history.delete("a")
    history.settle()
    assert counts(history) == (2, 2, 0)


def test_members_wait_for_room_and_say_so(history: History) -> None:
    quota(history, memory="512Mi")
    filled(history, 2)
    assert len(sandboxes(history)) == 1
    conditions = {condition["type"]: condition for condition in pool(history).status["conditions"]}
    assert conditions["Degraded"]["status"] == "True"
    assert "QuotaExceeded" in conditions["Degraded"]["message"]


@pytest.mark.parametrize("is_prepared", [True, False])
def test_other_hosts_hand_out_no_filled_workspace(is_prepared: bool) -> None:
    """Its files would be those of the snapshot, and the sandbox's own volume would get none."""
    begin = {"restoreFrom": {"snapshotRef": {"name": "s"}}} if is_prepared else {}
    template = SandboxTemplateSpec.model_validate({"image": TINY, "workspace": {}, **begin})
    spec = {"templateRef": {"name": "t"}}
    own = {"volume": {"name": "own", "size": "8Mi"}}
    plain_key, own_key = (
        ready_key(SandboxSpec.model_validate(fields), template, "default", Policy())
        for fields in (spec, {**spec, "workspace": own})
    )
    assert (plain_key != own_key) is is_prepared


def ready(history: History, name: str) -> int:
    return int(pool(history, name).status["readyReplicas"])


def template(history: History, memory: str = "256Mi") -> None:
    limits = {"limits": {"memory": memory, "cpu": "500m", "pids": 16}}
    history.put("SandboxTemplate", "t", image=TINY, command=["sleep", "1000000"], resources=limits)


def pulls(decided: Plan) -> int:
    return sum(isinstance(action, PullImage) for group in decided.groups for action in group.actions)


def test_the_pool_of_higher_priority_is_filled_first(history: History) -> None:
    quota(history, memory="768Mi")
    template(history)
    apply_pool(history, "low", warmReplicas=2)
    apply_pool(history, "high", warmReplicas=2, priority=5)
    history.settle()
    assert (ready(history, "high"), ready(history, "low")) == (2, 1)


def test_a_pool_of_lower_priority_gives_way_and_equals_do_not(history: History) -> None:
    quota(history, memory="768Mi")
    template(history)
    apply_pool(history, "low", warmReplicas=3)
    history.settle()
    apply_pool(history, "equal", warmReplicas=1)
    history.settle()
    assert (ready(history, "low"), ready(history, "equal")) == (3, 0)
    apply_pool(history, "high", warmReplicas=2, priority=5)
    history.settle()
    assert (ready(history, "low"), ready(history, "high")) == (1, 2)


def test_one_member_of_the_least_pool_goes_for_one_sandbox(history: History) -> None:
    quota(history, memory="1Gi")
    template(history)
    apply_pool(history, "low", warmReplicas=2)
    apply_pool(history, "high", warmReplicas=2, priority=5)
    history.settle()
    history.apply("a", resources={"limits": {"memory": "256Mi"}})
    history.settle()
    assert history.condition("a", "Ready") == "True Running"
    assert (ready(history, "low"), ready(history, "high")) == (1, 2)


def test_an_image_is_fetched_once_for_all_members(history: History) -> None:
    del history.engine.images[TINY]
    history.engine.registry.add(TINY)
    template(history)
    apply_pool(history, warmReplicas=6)
    numbers = [pulls(history.run_pass()) for _ in range(5)]
    assert next(number for number in numbers if number) == 1, "one fetches it, the others wait"
    history.settle()
    assert ready(history, "warm") == 6


def test_a_pool_that_keeps_nothing_warm_has_its_image_fetched_once(history: History) -> None:
    del history.engine.images[TINY]
    history.engine.registry.add(TINY)
    template(history)
    for name in ("warm", "other"):
        apply_pool(history, name, warmReplicas=0)
    first = [pulls(history.run_pass()) for _ in range(4)]
    assert sum(first) == 2, "the second one looks when the first is done"
    assert max(first) == 1
    assert TINY in history.engine.images
    assert sandboxes(history) == []
    history.settle()
    assert pulls(history.run_pass()) == 0


def test_an_image_that_is_nowhere_is_told_by_its_pool_and_tried_again(history: History) -> None:
    del history.engine.images[TINY]
    template(history)
    apply_pool(history, warmReplicas=0)
    history.settle()
    degraded = {condition["type"]: condition for condition in pool(history).status["conditions"]}["Degraded"]
    assert (degraded["status"], degraded["reason"]) == ("True", "ImagePullFailed")
    assert "is not on this host" in degraded["message"]
    assert any(event.reason == "ImagePullFailed" for event in history.events)
    history.engine.registry.add(TINY)
    history.clock.advance(300)
    history.settle()
    degraded = {condition["type"]: condition for condition in pool(history).status["conditions"]}["Degraded"]
    assert (degraded["status"], TINY in history.engine.images) == ("False", True)


def test_a_rename_waits_while_claims_come_for_some_seconds() -> None:
    """Each of many claims would decide the earlier ones again, five times a second and in vain."""
    rename = RenameContainer("uid", "pdk-a", "pdk-warm", "id", why="claimed")
    decision = Decision(InstanceState(claim=ClaimRecord(launch="Warm")), actions=(rename,))
    now = 1000.25
    builder: Any = SimpleNamespace(claiming={"later"}, renames=None)
    context: Any = SimpleNamespace(now=now, obj=SimpleNamespace(uid="uid", created_at=now))
    deferred = defer_renames(builder, context, decision)
    assert deferred.timer is not None
    assert deferred.actions == ()
    assert 1 <= deferred.timer - now <= 2
    builder.snapshot = SimpleNamespace(
        observed=SimpleNamespace(containers={}), instances={}, progress=SimpleNamespace(in_flight=())
    )
    context.now = now + 10
    assert defer_renames(builder, context, decision).actions == (rename,)
    context.now = now
    builder.claiming.clear()
    assert defer_renames(builder, context, decision).actions == (rename,)


def test_a_claimed_member_is_no_longer_remembered_as_one() -> None:
    member: Any = object()
    memo = Memo(members={"a": member, "b": member}, judged={"a": member, "b": member})
    nothing: Any = {}
    host: Any = None
    seen = Seen({}, {"a": member, "b": member}, *(nothing,) * 5, host, frozenset())
    memo.last_pass = seen
    memo.candidates(seen._replace(sandboxes={"a": member}, members={"b": member}), frozenset())
    assert (list(memo.members), list(memo.judged)) == (["b"], ["b"])
