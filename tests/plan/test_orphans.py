"""Orphans: removed late, a share at a time, and only with proof."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.common.labels import container_name
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.outcome import Ok, Transient
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import FleetView, Result, Snapshot, SweepRules
from controller.plan.base.memo import Memo
from tests.plan.case_file import NOW, container, decide, instance, memory, sandbox, snapshot, uid_of
from tests.snapshots import changed_snapshot

KEPT = sandbox("kept", {"template": {"image": "a:1"}})


def stray(name: str, /, **said: Any) -> Container:
    """A container as Paddock creates it, of a sandbox that is not stored."""
    uid = uid_of(name)
    created = Container(
        id=f"{name}-c1",
        name=container_name(name, uid),
        uid=uid,
        state=State.RUNNING,
        namespace="default",
        object_name=name,
        created_at=NOW - 500,
    )
    return replace(created, **said)


def host(*containers: Container, keeps: bool = True, **said: Any) -> Snapshot:
    """A host with these containers beside a settled sandbox."""
    sandboxes = [KEPT] if keeps else []
    document = {KEPT.obj.uid: instance(KEPT, memory(KEPT, run=["kept-c1", -100]))} if keeps else {}
    return snapshot(
        sandboxes, [container(KEPT), *containers] if keeps else list(containers), instances=document, **said
    )


def later(seen: Snapshot, seconds: float, **said: Any) -> Snapshot:
    return changed_snapshot(seen, now=seen.now + seconds, **said)


def removed(planned: Plan) -> list[str]:
    """The names of the orphans that this plan removes."""
    return [str(action) for group in planned.groups for action in group.actions if group.ref.uid != KEPT.obj.uid]


def test_orphan_waits_for_its_grace_and_is_removed() -> None:
    memo, observed = Memo(), host(stray("lost"))
    first = decide(observed, memo)
    waits = "sandbox/default/lost waits until +60s  # Orphaned: no object is stored for it; removed if that is still so"
    assert waits in str(first)
    assert first.next_wake == NOW + 60
    assert removed(decide(later(observed, 59), memo)) == []
    last = decide(later(observed, 60), memo)
    assert "  remove pdk-lost-lostuid  # no object is stored for it for 60 s" in str(last).splitlines()
    assert [(event.type, event.reason) for event in last.writes.events] == [("Warning", "Orphaned")], "written first"


def test_grace_restarts_after_restart_blindness_or_return() -> None:
    observed = host(stray("lost"))
    memo = Memo()
    decide(observed, memo)
    assert removed(decide(later(observed, 90), Memo())) == []
    decide(later(observed, 30, observed=replace(observed.observed, blind="the engine is away")), memo)
    assert removed(decide(later(observed, 60), memo)) == []
    decide(later(host(), 70), memo)
    assert removed(decide(later(observed, 121), memo)) == []
    assert removed(decide(later(observed, 181), memo)) == ["remove pdk-lost-lostuid"]


def test_clock_set_back_does_not_keep_orphans() -> None:
    memo, observed = Memo(), host(stray("lost"))
    decide(later(observed, 50_000), memo)
    decide(observed, memo)
    assert removed(decide(later(observed, 60), memo)) == ["remove pdk-lost-lostuid"]


@pytest.mark.parametrize(
    "like",
    [
        {"name": "happy_turing"},
        {"name": "pdk-lost-lostuid2"},
        {"name": container_name("lost", "another-uid")},
        {"uid": ""},
        {"object_name": ""},
        {"state": State.UNKNOWN},
        {"state": State.REMOVING},
    ],
    ids=str,
)
def test_unproven_or_unreadable_containers_are_left_alone(like: dict[str, Any]) -> None:
    memo, observed = Memo(), host(stray("lost", **like))
    planned = decide(observed, memo)
    assert planned.orphans == 1, "it is counted all the same"
    assert removed(decide(later(observed, 1e6), memo)) == []


def test_recorded_containers_are_no_orphans() -> None:
    """Of an object that is not a sandbox, of one whose spec cannot be read, or by the record of its name."""
    lost = stray("lost")
    unreadable = replace(sandbox("lost", {"template": {"image": "a:1"}}), spec=None, template=None, broken="words")
    record = instance(unreadable, memory(KEPT))
    observed = host(lost)
    for expected in (
        changed_snapshot(observed, sandboxes={**observed.desired.sandboxes, lost.uid: unreadable}),
        replace(observed, instances={**observed.instances, lost.uid: record}),
        replace(observed, instances={**observed.instances, "its-pool": replace(record, parent_uid="its-pool")}),
    ):
        memo = Memo()
        assert decide(expected, memo).orphans == 0
        assert removed(decide(later(expected, 1e6), memo)) == []


def test_blind_empty_or_withheld_sweeps_remove_nothing() -> None:
    lost = stray("lost")
    withheld = SweepRules(withheld="the store was restored")
    for observed, word in (
        (host(lost, blind="the engine is away"), ""),
        (host(lost, keeps=False), "the store holds no sandbox"),
        (changed_snapshot(host(lost), sweep=withheld), "the store was restored"),
    ):
        memo = Memo()
        decide(observed, memo)
        planned = decide(later(observed, 1e6), memo)
        assert removed(planned) == []
        assert word in str(planned)


@pytest.mark.parametrize(("share", "sweeps"), [(0.2, [2, 1, 1, 1, 1, 1, 1, 1]), (0.01, [1] * 9), (1.0, [9])])
def test_sweep_takes_a_share_once_per_grace(share: float, sweeps: list[int]) -> None:
    lost = [stray(f"lost{number}") for number in range(9)]
    memo, rules = Memo(), SweepRules(share=share)
    observed = changed_snapshot(host(*lost), sweep=rules)
    decide(observed, memo)
    containers, now = list(lost), 60.0
    for sweep in sweeps:
        observed_host = changed_snapshot(host(*containers), sweep=rules)
        texts = removed(decide(later(observed_host, now), memo))
        assert len(texts) == sweep
        containers = [entry for entry in containers if f"remove {entry.name}" not in texts]
        assert removed(decide(later(changed_snapshot(host(*containers), sweep=rules), now + 59), memo)) == []
        now += 60
    assert not containers


def test_removals_in_flight_are_kept_and_reported() -> None:
    memo, lost = Memo(), stray("lost")
    observed = host(lost)
    decide(observed, memo)
    group = next(entry for entry in decide(later(observed, 60), memo).groups if entry.ref.uid == lost.uid)
    flying = later(observed, 200, in_flight=frozenset({lost.uid}))
    assert removed(decide(flying, memo)) == []
    for outcome, counted, reasons in ((Transient("EngineError", "busy"), 0, ["EngineError"]), (Ok(), 1, [])):
        result = Result(lost.uid, 1, True, ((group.actions[0], outcome),))
        plan = decide(later(host(), 201, results={lost.uid: result}), memo)
        assert plan.orphans_removed == counted
        assert [event.reason for event in plan.writes.events] == reasons


def test_another_host_s_sandbox_is_removed_only_if_it_moved() -> None:
    relocated, stored = stray("moved"), stray("kept-there")
    observed = replace(
        host(relocated, stored),
        fleet=FleetView(moved_uids=frozenset((relocated.uid, stored.uid)), unmoved_uids=frozenset((stored.uid,))),
    )
    planned = decide(later(observed, 1e6), Memo())
    assert removed(planned) == [f"remove {relocated.name}"]
    assert "sandbox/default/kept-there waits  # OrphanKept: its sandbox is another host's and never was here" in str(
        planned
    )
