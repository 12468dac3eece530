"""Claims through the real middle of the house: what is reserved when, what Ready waits for, who goes first."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.kinds.planning.action import CreateContainer, RenameContainer, UpdateLimits
from controller.kinds.planning.plan import Plan
from controller.kinds.quota import Amount
from controller.kinds.workflowrun import seconds_of
from controller.plan.capacity.reservations import reserved_amounts
from controller.policy.images import ImageRules
from controller.policy.levels.levels import Policy
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.examples import examples
from tests.loop.harness import TINY, Crash, LoopHarness
from tests.loop.test_pools import apply_pool, boxes, counts, filled, house, launch, quota

__all__ = ["house"]


def actions(decided: Plan, kind: type) -> list[Any]:
    return [action for group in decided.groups for action in group.actions if isinstance(action, kind)]


def events(house: LoopHarness, name: str) -> dict[str, str]:
    return {event.reason: event.message for event in house.store.events(kind="Sandbox", name=name)}


def reserved(house: LoopHarness, name: str) -> int:
    [instance] = [entry for entry in house.store.instances() if entry.parent_name == name]
    return instance.reserves.memory_bytes


def test_a_sandbox_that_is_as_asked_is_ready_at_once_and_renamed_after(house: LoopHarness) -> None:
    filled(house, 1)
    house.refer("a", "t")
    first = house.reconcile_pass.run()
    assert house.condition("a", "Ready") == "True Running"
    assert (len(actions(first, RenameContainer)), actions(first, UpdateLimits)) == (1, [])
    house.settle()
    assert house.container_name("a") in boxes(house)


def test_the_deadline_of_a_claimed_one_counts_from_its_claim(house: LoopHarness) -> None:
    filled(house, 1)
    house.clock.advance(5000)
    house.refer("a", "t", lifecycle={"activeDeadlineSeconds": 100, "keepRunning": True})
    house.settle(seconds=60)
    assert house.condition("a", "Ready") == "True Running"
    box = house.get("a")
    assert box is not None
    assert seconds_of(box.status["startTime"]) == pytest.approx(box.created_at, abs=1)
    house.engine.kill(house.container_name("a"))
    house.daemon()
    house.settle(seconds=0)
    house.clock.advance(box.created_at + 99 - house.clock.now())
    house.settle(seconds=0)
    assert house.condition("a", "Ready") == "True Running"
    house.settle(seconds=30)
    assert house.condition("a", "Finished") == "True DeadlineExceeded"


def test_limits_come_before_ready_and_the_name_after_it(house: LoopHarness) -> None:
    filled(house, 1)
    house.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    first = house.run_pass()
    assert (len(actions(first, UpdateLimits)), actions(first, RenameContainer)) == (1, [])
    assert [group.urgent for group in first.groups] == [True]
    assert house.condition("a", "Ready") == "False Claiming"
    second = house.run_pass()
    assert house.condition("a", "Ready") == "True Running"
    assert len(actions(second, RenameContainer)) == 1


def test_renames_wait_for_the_limits_of_other_claims(house: LoopHarness) -> None:
    filled(house, 2)
    house.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    house.refer("b", "t")
    first = house.run_pass()
    assert (len(actions(first, UpdateLimits)), actions(first, RenameContainer)) == (1, [])
    assert house.condition("b", "Ready") == "True Running"
    house.settle()
    assert {house.container_name("a"), house.container_name("b")} <= set(boxes(house))


def test_a_claim_moves_nothing_of_what_others_are_decided_on(house: LoopHarness) -> None:
    """With hundreds of sandboxes, deciding all of them anew is what a claim would wait for."""
    filled(house, 3)
    house.reconcile_pass.run()
    before = house.reconcile_pass.last
    house.refer("a", "t")
    house.reconcile_pass.run()
    after = house.reconcile_pass.last
    assert before is not None
    assert after is not None
    warm = [uid for uid, instance in after.instances.items() if instance.role == "warm" and uid in before.instances]
    assert len(warm) == 2
    assert all(after.instances[uid] is before.instances[uid] for uid in warm)
    (old,), (new,) = before.pools.values(), after.pools.values()
    assert old.spec is new.spec, "the pool's status has moved, not what its members are"


def test_what_a_claim_wants_is_reserved_with_it(house: LoopHarness) -> None:
    filled(house, 1)
    house.refer("a", "t", resources={"limits": {"memory": "768Mi"}})
    assert reserved(house, "a") == 768 << 20, "before any turn"
    assert events(house, "a")["Claimed"].endswith("a warm sandbox of pool warm")


def test_one_file_of_several_claims(house: LoopHarness) -> None:
    """Each sees what those before it have taken: of the members, and of the quota."""
    quota(house, memory="2Gi")
    filled(house, 3)
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox"}
    spec = {"templateRef": {"name": "t"}, "resources": {"limits": {"memory": "768Mi"}}}
    text = "---".join(f"\n{json.dumps({**document, 'metadata': {'name': name}, 'spec': spec})}\n" for name in "abc")
    house.services.apply.apply([Source("test", text)])
    rows = {instance.parent_name: instance for instance in house.store.instances()}
    assert len({rows[name].uid for name in "ab"}) == 2
    assert "c" not in rows, "768 twice, and 512 of a member: there is no room to grow for the third"
    house.settle()
    assert house.condition("c", "Scheduled") == "False QuotaExceeded"


def test_a_claim_that_has_no_room_to_grow_waits_for_it(house: LoopHarness) -> None:
    quota(house, memory="1Gi")
    filled(house, 2)
    house.refer("a", "t", resources={"limits": {"memory": "768Mi"}})
    house.settle()
    assert launch(house, "a").startswith("Cold: "), "the members gave way to it"
    assert house.condition("a", "Ready") == "True Running"
    assert counts(house)[1] == 0


def test_no_claim_goes_before_one_that_waits(house: LoopHarness) -> None:
    quota(house, memory="1Gi")
    filled(house, 1)
    house.apply("big", resources={"limits": {"memory": "1Gi"}})
    house.run_pass()
    assert house.condition("big", "Scheduled") == "False QuotaExceeded"
    house.refer("small", "t")
    house.settle()
    assert house.condition("big", "Ready") == "True Running"
    assert house.condition("small", "Scheduled") == "False QuotaExceeded"


def test_what_waits_in_vain_holds_up_no_claim(house: LoopHarness) -> None:
    quota(house, memory="1Gi")
    house.apply("other", resources={"limits": {"memory": "512Mi"}})
    house.settle()
    house.apply("big", resources={"limits": {"memory": "768Mi"}})
    house.settle()
    quota(house, memory="700Mi")  # big will never fit now
    house.apply_template("t", image=TINY, command=["sleep", "1000000"], resources={"limits": {"memory": "64Mi"}})
    apply_pool(house, warmReplicas=1)
    house.settle()
    house.refer("a", "t")
    house.settle()
    assert house.condition("big", "Scheduled") == "False QuotaExceeded"
    assert launch(house, "a") == "Warm: "


def test_a_cold_start_is_told_in_an_event_where_a_pool_could_have_served(house: LoopHarness) -> None:
    filled(house, 1)
    house.refer("a", "t")
    house.refer("b", "t")
    house.apply("own")
    house.settle()
    assert "ColdStart" not in events(house, "a")
    assert events(house, "b")["ColdStart"] == "pool `warm` had no member ready of its template as it is now"
    assert "ColdStart" not in events(house, "own")


def test_refill_and_late_pool_tell_no_cold_start(house: LoopHarness) -> None:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"])
    house.refer("before", "t")
    house.refer("suspended", "t", runState="Suspended")
    house.run_pass()
    house.clock.advance(1)
    apply_pool(house, warmReplicas=2)
    house.settle()
    house.refer("taken", "t")
    house.settle()
    house.refer("suspended", "t", runState="Running")
    house.settle()
    assert [event.reason for event in house.store.events() if event.reason == "ColdStart"] == []


def test_cold_start_tells_of_a_pool_that_keeps_none_warm(house: LoopHarness) -> None:
    filled(house, 0)
    house.refer("a", "t")
    house.settle()
    assert events(house, "a")["ColdStart"] == "pool `warm` keeps no member warm (its warmReplicas is 0)"


def test_the_refill_is_held_back_while_claims_come_in(house: LoopHarness) -> None:
    filled(house, 6)
    for index in range(5):
        house.refer(f"b{index}", "t", resources={"limits": {"memory": "768Mi"}})
    for _ in range(3):
        assert len(actions(house.run_pass(), CreateContainer)) <= 1
    house.clock.advance(1)
    started = sum(len(actions(house.run_pass(), CreateContainer)) for _ in range(2))
    assert started > 1, "by all workers, once no claim has come for a while"
    house.settle()
    assert counts(house) == (6, 6, 5)


def test_a_pool_that_has_most_of_its_members_is_refilled_after_the_burst(house: LoopHarness) -> None:
    filled(house, 6)
    for index in range(2):
        house.refer(f"b{index}", "t")
    assert [actions(house.run_pass(), CreateContainer) for _ in range(3)] == [[], [], []]
    house.clock.advance(1)
    house.settle()
    assert counts(house) == (6, 6, 2)


def test_a_pool_that_lost_half_of_its_members_is_refilled_by_one_worker(house: LoopHarness) -> None:
    filled(house, 6)
    for index in range(3):
        house.refer(f"b{index}", "t")
    started = [len(actions(house.run_pass(), CreateContainer)) for _ in range(3)]
    assert max(started) == 1, "although the claims are not over"


HARD = Amount(1 << 40, 1536 << 20, 1 << 40, 3)
STEPS = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from("abcd"), st.sampled_from(["256Mi", "512Mi", "768Mi"])),
    st.tuples(st.just("claim"), st.sampled_from("abcd"), st.sampled_from(["512Mi", "1536Mi"])),
    st.tuples(st.just("delete"), st.sampled_from("abcd")),
    st.tuples(st.just("scale"), st.integers(0, 3)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("turn")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("crash"), st.integers(1, 6), st.booleans()),
)


def check(house: LoopHarness) -> None:
    """Of what is committed, and of what really runs."""
    rows = house.store.instances()
    total = reserved_amounts(rows)[""]
    assert total.within(HARD), total
    reserves = {row.uid: row.reserves.memory_bytes for row in rows}
    for uid, names in house.ours().items():
        assert len(names) == 1
        sandbox = house.engine.box(names[0])
        if str(sandbox.state) in ("running", "paused"):
            assert sandbox.limits.memory_bytes <= reserves[uid], "what runs is reserved"


@pytest.mark.timeout(600)
@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(steps=st.lists(STEPS, max_size=14))
def test_no_history_of_claims_ever_holds_more_than_is_allowed(world: World, steps: list[tuple[Any, ...]]) -> None:
    store = world.store()
    house = LoopHarness(store)
    house.uids = store.revision() * 100
    try:
        quota(house, memory="1536Mi", sandboxes=3)
        filled(house, 2, shutdownGracePeriodSeconds=0)
        for step in steps:
            _do(house, *step)
            check(house)
        house.settle()
        check(house)
        for name in house.names():
            house.delete(name)
        house.delete("warm", "sandboxpool")
        house.settle()
        assert store.instances() == []
    finally:
        house.close()
        store.close()


def _do(house: LoopHarness, what: str, *how: Any) -> None:
    if what == "claim":
        limits = {"limits": {"memory": how[1]}}
        with contextlib.suppress(errors.Conflict):  # it is being deleted
            house.refer(how[0], "t", resources=limits, lifecycle={"shutdownGracePeriodSeconds": 0})
    elif what == "delete" and house.get(how[0]) is not None:
        house.delete(how[0])
    elif what == "scale":
        apply_pool(house, warmReplicas=how[0], shutdownGracePeriodSeconds=0)
    elif what == "turn":
        house.run_pass()
    elif what == "settle":
        house.settle()
    elif what == "crash":
        house.fuse.blow_at, house.fuse.after = house.fuse.steps + how[0], how[1]
        try:
            house.settle()
        except Crash:
            house.daemon()
        else:
            house.fuse.blow_at = None


def test_a_used_sandbox_that_a_restored_store_takes_for_warm_is_destroyed(house: LoopHarness) -> None:
    filled(house, 1)
    [member] = [instance for instance in house.store.instances() if instance.role == "warm"]
    # As a backup from before a claim leaves it: the claim gave the container the sandbox's name, and is forgotten.
    house.engine.rename(member.name, f"pdk-used-{member.uid[:8]}")
    house.run_pass()
    house.refer("a", "t", poolPolicy="Require")
    house.settle()
    sandbox = house.get("a")
    assert sandbox is not None
    assert sandbox.uid != member.uid
    assert house.condition("a", "Ready") == "True Running"
    assert member.state.container not in {
        entry.id for container in house.engine.observe().containers.values() for entry in container
    }
    assert counts(house)[0] == 1


def test_a_sandbox_of_an_image_that_is_allowed_no_more_is_not_handed_out(house: LoopHarness) -> None:
    filled(house, 1)
    house.policy = Policy(images=ImageRules(allowed_patterns=("other:*",)))
    house.daemon()
    house.reconcile_pass.run()
    [member] = [instance for instance in house.store.instances() if instance.role == "warm"]
    house.refer("a", "t")
    sandbox = house.get("a")
    assert sandbox is not None
    assert sandbox.uid != member.uid
    house.settle()
    assert house.condition("a", "Ready").startswith("False")


def test_a_member_without_limits_is_never_handed_out(house: LoopHarness) -> None:
    filled(house, 2)
    for name in boxes(house):
        house.engine.lose_cgroups(name)
    house.engine.observe_now()
    house.run_pass()
    house.refer("a", "t")
    house.settle()
    assert launch(house, "a").startswith("Cold")
    house.refer("b", "t")
    house.settle()
    assert launch(house, "b").startswith("Warm"), "its members are restarted, and have limits again"


def test_a_member_whose_limits_are_unreadable_is_not_handed_out_and_its_pool_says_so(house: LoopHarness) -> None:
    filled(house, 1)
    house.engine.box(boxes(house)[0]).limits_unread = True
    house.engine.observe_now()
    house.run_pass()
    sandbox_pool = house.store.get("SandboxPool", "default", "warm")
    assert sandbox_pool is not None
    degraded = next(condition for condition in sandbox_pool.status["conditions"] if condition["type"] == "Degraded")
    assert (degraded["reason"], "LimitsUnread" in degraded["message"]) == ("MembersFail", True)
    house.refer("a", "t")
    house.settle()
    assert launch(house, "a").startswith("Cold")
