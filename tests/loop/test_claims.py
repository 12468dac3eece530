"""Claims through the real middle of the code: what is reserved when, what Ready waits for, who goes first."""

import contextlib
import json
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.kinds.planning.action import Action, CreateContainer, RenameContainer, UpdateLimits
from controller.kinds.planning.outcome import Transient
from controller.kinds.planning.plan import Plan
from controller.kinds.quota import Amount
from controller.kinds.registry import discover
from controller.kinds.workflowrun import seconds_of
from controller.loop.workers import Workers
from controller.plan.capacity.reservations import reserved_amounts
from controller.policy.images import ImageRules
from controller.policy.levels.levels import Policy
from controller.ports import NullMeter
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.daemon import wait_for
from tests.examples import examples
from tests.loop.harness import TINY, Crash, LoopHarness
from tests.loop.test_pools import apply_pool, containers, counts, filled, harness, launch, quota

__all__ = ["harness"]


def actions(decided: Plan, kind: type) -> list[Any]:
    return [action for group in decided.groups for action in group.actions if isinstance(action, kind)]


def events(harness: LoopHarness, name: str) -> dict[str, str]:
    return {event.reason: event.message for event in harness.store.events(kind="Sandbox", name=name)}


def reserved(harness: LoopHarness, name: str) -> int:
    [instance] = [entry for entry in harness.store.instances() if entry.parent_name == name]
    return instance.reserves.memory_bytes


def test_a_sandbox_that_is_as_asked_is_ready_at_once_and_renamed_after(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.refer("a", "t")
    first = harness.reconcile_pass.run()
    assert harness.condition("a", "Ready") == "True Running"
    assert (len(actions(first, RenameContainer)), actions(first, UpdateLimits)) == (1, [])
    harness.settle()
    assert harness.container_name("a") in containers(harness)


def test_the_deadline_of_a_claimed_one_counts_from_its_claim(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.clock.advance(5000)
    harness.refer("a", "t", lifecycle={"activeDeadlineSeconds": 100, "keepRunning": True})
    harness.settle(seconds=60)
    assert harness.condition("a", "Ready") == "True Running"
    sandbox = harness.get("a")
    assert sandbox is not None
    assert seconds_of(sandbox.status["startTime"]) == pytest.approx(sandbox.created_at, abs=1)
    harness.engine.kill(harness.container_name("a"))
    harness.daemon()
    harness.settle(seconds=0)
    harness.clock.advance(sandbox.created_at + 99 - harness.clock.now())
    harness.settle(seconds=0)
    assert harness.condition("a", "Ready") == "True Running"
    harness.settle(seconds=30)
    assert harness.condition("a", "Finished") == "True DeadlineExceeded"


def test_limits_come_before_ready_and_the_name_after_it(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    first = harness.run_pass()
    assert (len(actions(first, UpdateLimits)), actions(first, RenameContainer)) == (1, [])
    assert [group.urgent for group in first.groups] == [True]
    assert harness.condition("a", "Ready") == "False Claiming"
    second = harness.run_pass()
    assert harness.condition("a", "Ready") == "True Running"
    assert len(actions(second, RenameContainer)) == 1


def test_renames_wait_for_the_limits_of_other_claims(harness: LoopHarness) -> None:
    filled(harness, 2)
    harness.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    harness.refer("b", "t")
    first = harness.run_pass()
    assert (len(actions(first, UpdateLimits)), actions(first, RenameContainer)) == (1, [])
    assert harness.condition("b", "Ready") == "True Running"
    harness.settle()
    assert {harness.container_name("a"), harness.container_name("b")} <= set(containers(harness))


def test_renames_of_a_burst_share_one_pass(harness: LoopHarness) -> None:
    """Until then those sandboxes are not decided anew in each pass: many a second would decide each other's."""
    filled(harness, 3)
    harness.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    harness.refer("b", "t")
    harness.refer("c", "t")
    harness.run_pass()
    assert [action.name for action in actions(harness.run_pass(), RenameContainer)] == [harness.container_name("a")]
    harness.clock.advance(0.4)
    renames = {action.name for action in actions(harness.run_pass(), RenameContainer)}
    assert renames == {harness.container_name("b"), harness.container_name("c")}


def test_deletion_waits_for_no_rename_of_others(harness: LoopHarness) -> None:
    filled(harness, 6)
    begun, may_end = list[Action](), threading.Event()

    def before(action: Action) -> None:
        begun.append(action)
        assert not isinstance(action, RenameContainer) or may_end.wait(60)

    workers = Workers(harness.engine, NullMeter(), threads=1, wake=lambda: None, before=before)
    reconcile_pass = harness.pass_with(workers)
    names = [f"s{number}" for number in range(6)]
    for name in names:
        harness.refer(name, "t")

    def rename_count() -> int:
        return sum(isinstance(action, RenameContainer) for action in begun)

    def two_renames() -> bool:
        harness.clock.advance(0.2)
        reconcile_pass.run()
        return rename_count() == 2

    wait_for("two renames begin", two_renames)
    for _ in range(20):  # neither later passes nor later times begin more
        harness.clock.advance(0.2)
        reconcile_pass.run()
    renaming = workers.view()[0]
    deleted = next(name for name in names if (box := harness.get(name)) is not None and box.uid not in renaming)
    harness.delete(deleted)

    def is_gone() -> bool:
        reconcile_pass.run()
        return harness.get(deleted) is None

    wait_for("it is gone", is_gone)
    assert rename_count() == 2
    may_end.set()

    def all_renamed() -> bool:
        harness.clock.advance(0.2)
        reconcile_pass.run()
        return {harness.container_name(name) for name in names if name != deleted} <= set(containers(harness))

    wait_for("the others are renamed", all_renamed)
    workers.stop()


def test_a_claim_moves_nothing_of_what_others_are_decided_on(harness: LoopHarness) -> None:
    """With hundreds of sandboxes, deciding all of them anew is what a claim would wait for."""
    filled(harness, 3)
    harness.reconcile_pass.run()
    before = harness.reconcile_pass.last
    harness.refer("a", "t")
    harness.reconcile_pass.run()
    after = harness.reconcile_pass.last
    assert before is not None
    assert after is not None
    warm = [uid for uid, instance in after.instances.items() if instance.role == "warm" and uid in before.instances]
    assert len(warm) == 2
    assert all(after.instances[uid] is before.instances[uid] for uid in warm)
    (old,), (new,) = before.desired.pools.values(), after.desired.pools.values()
    assert old.spec is new.spec, "the pool's status has moved, not what its members are"


def test_what_a_claim_wants_is_reserved_with_it(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.refer("a", "t", resources={"limits": {"memory": "768Mi"}})
    assert reserved(harness, "a") == 768 << 20, "before any pass"
    assert events(harness, "a")["Claimed"].endswith("a warm sandbox of pool warm")


def test_one_file_of_several_claims(harness: LoopHarness) -> None:
    """Each sees what those before it have taken: of the members, and of the quota."""
    quota(harness, memory="2Gi")
    filled(harness, 3)
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox"}
    spec = {"templateRef": {"name": "t"}, "resources": {"limits": {"memory": "768Mi"}}}
    text = "---".join(f"\n{json.dumps({**document, 'metadata': {'name': name}, 'spec': spec})}\n" for name in "abc")
    harness.services.apply.apply([Source("test", text)])
    rows = {instance.parent_name: instance for instance in harness.store.instances()}
    assert len({rows[name].uid for name in "ab"}) == 2
    assert "c" not in rows, "768 twice, and 512 of a member: there is no room to grow for the third"
    harness.settle()
    assert harness.condition("c", "Scheduled") == "False QuotaExceeded"


def test_a_claim_that_has_no_room_to_grow_waits_for_it(harness: LoopHarness) -> None:
    quota(harness, memory="1Gi")
    filled(harness, 2)
    harness.refer("a", "t", resources={"limits": {"memory": "768Mi"}})
    harness.settle()
    assert launch(harness, "a").startswith("Cold: "), "the members gave way to it"
    assert harness.condition("a", "Ready") == "True Running"
    assert counts(harness)[1] == 0


def test_no_claim_goes_before_one_that_waits(harness: LoopHarness) -> None:
    quota(harness, memory="1Gi")
    filled(harness, 1)
    harness.apply("big", resources={"limits": {"memory": "1Gi"}})
    harness.run_pass()
    assert harness.condition("big", "Scheduled") == "False QuotaExceeded"
    harness.refer("small", "t")
    harness.settle()
    assert harness.condition("big", "Ready") == "True Running"
    assert harness.condition("small", "Scheduled") == "False QuotaExceeded"


def test_what_waits_in_vain_holds_up_no_claim(harness: LoopHarness) -> None:
    quota(harness, memory="1Gi")
    harness.apply("other", resources={"limits": {"memory": "512Mi"}})
    harness.settle()
    harness.apply("big", resources={"limits": {"memory": "768Mi"}})
    harness.settle()
    quota(harness, memory="700Mi")  # big will never fit now
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"], resources={"limits": {"memory": "64Mi"}})
    apply_pool(harness, warmReplicas=1)
    harness.settle()
    harness.refer("a", "t")
    harness.settle()
    assert harness.condition("big", "Scheduled") == "False QuotaExceeded"
    assert launch(harness, "a") == "Warm: "


def test_a_cold_start_is_told_in_an_event_where_a_pool_could_have_served(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.refer("a", "t")
    harness.refer("b", "t")
    harness.apply("own")
    harness.settle()
    assert "ColdStart" not in events(harness, "a")
    assert events(harness, "b")["ColdStart"] == "pool `warm` had no member ready of its template as it is now"
    assert "ColdStart" not in events(harness, "own")


def test_refill_and_late_pool_tell_no_cold_start(harness: LoopHarness) -> None:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
    harness.refer("before", "t")
    harness.refer("suspended", "t", runState="Suspended")
    harness.run_pass()
    harness.clock.advance(1)
    apply_pool(harness, warmReplicas=2)
    harness.settle()
    harness.refer("taken", "t")
    harness.settle()
    harness.refer("suspended", "t", runState="Running")
    harness.settle()
    assert [event.reason for event in harness.store.events() if event.reason == "ColdStart"] == []


def test_cold_start_tells_of_a_pool_that_keeps_none_warm(harness: LoopHarness) -> None:
    filled(harness, 0)
    harness.refer("a", "t")
    harness.settle()
    assert events(harness, "a")["ColdStart"] == "pool `warm` keeps no member warm (its warmReplicas is 0)"


def test_the_refill_is_held_back_while_claims_come_in(harness: LoopHarness) -> None:
    filled(harness, 6)
    for index in range(5):
        harness.refer(f"b{index}", "t", resources={"limits": {"memory": "768Mi"}})
    for _ in range(3):
        assert len(actions(harness.run_pass(), CreateContainer)) <= 1
    harness.clock.advance(1)
    started = sum(len(actions(harness.run_pass(), CreateContainer)) for _ in range(2))
    assert started > 1, "by all workers, once no claim has come for a while"
    harness.settle()
    assert counts(harness) == (6, 6, 5)


def test_a_pool_that_has_most_of_its_members_is_refilled_after_the_burst(harness: LoopHarness) -> None:
    filled(harness, 6)
    for index in range(2):
        harness.refer(f"b{index}", "t")
    assert [actions(harness.run_pass(), CreateContainer) for _ in range(3)] == [[], [], []]
    harness.clock.advance(1)
    harness.settle()
    assert counts(harness) == (6, 6, 2)


def test_a_pool_that_lost_half_of_its_members_is_refilled_by_one_worker(harness: LoopHarness) -> None:
    filled(harness, 6)
    for index in range(3):
        harness.refer(f"b{index}", "t")
    started = [len(actions(harness.run_pass(), CreateContainer)) for _ in range(3)]
    assert max(started) == 1, "although the claims are not over"


HARD = Amount(1 << 40, 1536 << 20, 1 << 40, 3)
STEPS = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from("abcd"), st.sampled_from(["256Mi", "512Mi", "768Mi"])),
    st.tuples(st.just("claim"), st.sampled_from("abcd"), st.sampled_from(["512Mi", "1536Mi"])),
    st.tuples(st.just("delete"), st.sampled_from("abcd")),
    st.tuples(st.just("scale"), st.integers(0, 3)),
    st.tuples(st.just("pass")),
    st.tuples(st.just("pass")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("crash"), st.integers(1, 6), st.booleans()),
)


def check(harness: LoopHarness) -> None:
    """Of what is committed, and of what really runs."""
    rows = harness.store.instances()
    total = reserved_amounts(rows)[""]
    assert total.within(HARD), total
    reserves = {row.uid: row.reserves.memory_bytes for row in rows}
    for uid, names in harness.ours().items():
        assert len(names) == 1
        sandbox = harness.engine.container(names[0])
        if str(sandbox.state) in ("running", "paused"):
            assert sandbox.limits.memory_bytes <= reserves[uid], "what runs is reserved"


@pytest.mark.timeout(600)
@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(steps=st.lists(STEPS, max_size=14))
def test_no_history_of_claims_ever_holds_more_than_is_allowed(backend: Backend, steps: list[tuple[Any, ...]]) -> None:
    store = backend.store()
    harness = LoopHarness(store)
    harness.uids = store.revision() * 100
    try:
        quota(harness, memory="1536Mi", sandboxes=3)
        filled(harness, 2, shutdownGracePeriodSeconds=0)
        for step in steps:
            _do(harness, *step)
            check(harness)
        harness.settle()
        check(harness)
        for name in harness.names():
            harness.delete(name)
        harness.delete("warm", "sandboxpool")
        harness.settle()
        assert store.instances() == []
    finally:
        harness.close()
        store.close()


def _do(harness: LoopHarness, what: str, *how: Any) -> None:
    if what == "claim":
        limits = {"limits": {"memory": how[1]}}
        with contextlib.suppress(errors.Conflict):  # it is being deleted
            harness.refer(how[0], "t", resources=limits, lifecycle={"shutdownGracePeriodSeconds": 0})
    elif what == "delete" and harness.get(how[0]) is not None:
        harness.delete(how[0])
    elif what == "scale":
        apply_pool(harness, warmReplicas=how[0], shutdownGracePeriodSeconds=0)
    elif what == "pass":
        harness.run_pass()
    elif what == "settle":
        harness.settle()
    elif what == "crash":
        harness.fuse.blow_at, harness.fuse.after = harness.fuse.steps + how[0], how[1]
        try:
            harness.settle()
        except Crash:
            harness.daemon()
        else:
            harness.fuse.blow_at = None


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_used_sandbox_that_a_restored_store_takes_for_warm_is_destroyed(
    harness: LoopHarness, *, is_renamed: bool
) -> None:
    filled(harness, 1)
    [member] = [instance for instance in harness.store.instances() if instance.role == "warm"]
    # As a backup from before a claim leaves it: the claim gave the container the sandbox's name, and is forgotten.
    if is_renamed:
        harness.engine.rename(member.name, f"pdk-used-{member.uid[:8]}")
    else:
        harness.engine.mark_used(member.state.container.id)
    harness.run_pass()
    harness.refer("a", "t", poolPolicy="Require")
    harness.settle()
    sandbox = harness.get("a")
    assert sandbox is not None
    assert sandbox.uid != member.uid
    assert harness.condition("a", "Ready") == "True Running"
    assert member.state.container.id not in {
        entry.id for container in harness.engine.observe().containers.values() for entry in container
    }
    assert counts(harness)[0] == 1


def test_a_use_before_its_rename_marks_a_claimed_one(harness: LoopHarness) -> None:
    filled(harness, 1)
    [member] = [instance for instance in harness.store.instances() if instance.role == "warm"]
    harness.refer("a", "t")
    harness.engine.fail_next(RenameContainer, Transient("EngineError", "a test"))
    harness.run_pass()
    assert harness.condition("a", "Ready") == "True Running"
    [container] = harness.engine.observe().containers[member.uid]
    assert (container.name, container.is_used) == (member.name, False)
    sandbox = discover().by_word("sandbox")
    assert sandbox is not None
    list(harness.services.sandbox_streams.exec(sandbox, "default", "a", ["true"])())
    [container] = harness.engine.observe().containers[member.uid]
    assert (container.name, container.is_used) == (member.name, True)


def test_a_sandbox_of_an_image_that_is_allowed_no_more_is_not_handed_out(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.policy = Policy(images=ImageRules(allowed_patterns=("other:*",)))
    harness.daemon()
    harness.reconcile_pass.run()
    [member] = [instance for instance in harness.store.instances() if instance.role == "warm"]
    harness.refer("a", "t")
    sandbox = harness.get("a")
    assert sandbox is not None
    assert sandbox.uid != member.uid
    harness.settle()
    assert harness.condition("a", "Ready").startswith("False")


def test_a_member_without_limits_is_never_handed_out(harness: LoopHarness) -> None:
    filled(harness, 2)
    for name in containers(harness):
        harness.engine.lose_cgroups(name)
    harness.engine.observe_now()
    harness.run_pass()
    harness.refer("a", "t")
    harness.settle()
    assert launch(harness, "a").startswith("Cold")
    harness.refer("b", "t")
    harness.settle()
    assert launch(harness, "b").startswith("Warm"), "its members are restarted, and have limits again"


def test_a_member_whose_limits_are_unreadable_is_not_handed_out_and_its_pool_says_so(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.engine.container(containers(harness)[0]).limits_unread = True
    harness.engine.observe_now()
    harness.run_pass()
    sandbox_pool = harness.store.get("SandboxPool", "default", "warm")
    assert sandbox_pool is not None
    degraded = next(condition for condition in sandbox_pool.status["conditions"] if condition["type"] == "Degraded")
    assert (degraded["reason"], "LimitsUnread" in degraded["message"]) == ("MembersFail", True)
    harness.refer("a", "t")
    harness.settle()
    assert launch(harness, "a").startswith("Cold")
