"""Statuses: fields of other versions are kept, and older records are read."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.activity import Activity
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.instance_json import state_from_json, state_to_json
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.plan.sandbox.status import CONDITIONS, FIELDS, OPTIONAL_CONDITIONS, carry_over
from tests.instance_states import changed_state
from tests.plan.case_file import container, decide, instance, memory, read, sandbox, snapshot
from tests.plan.test_cases import CASES
from tests.snapshots import changed_snapshot

READY = {"type": "Ready", "status": "True"}
LATER = {"type": "OfALaterVersion", "status": "True"}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_all_written_fields_are_listed(path: object) -> None:
    observed, _ = read(path)  # type: ignore[arg-type]
    for status_write in (status for status in decide(observed).writes.statuses if status.ref.kind == "Sandbox"):
        assert status_write.status.keys() <= FIELDS, "add new fields of the status to plan/sandbox/status.py"
        types = {condition["type"] for condition in status_write.status["conditions"]}
        assert types - OPTIONAL_CONDITIONS == CONDITIONS, "and new conditions"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_no_message_repeats_its_reason(path: object) -> None:
    observed, _ = read(path)  # type: ignore[arg-type]
    for status in decide(observed).writes.statuses:
        for condition in status.status.get("conditions", ()):
            assert not condition.get("message", "").startswith(f"{condition['reason']}:"), condition


def test_foreign_fields_stay_and_own_ones_are_replaced() -> None:
    before = {"conditions": [LATER, {**READY, "status": "False"}], "startTime": "then", "later": {"x": [1]}}
    document = {"conditions": [READY], "restartCount": 2}
    assert carry_over(before, document) == {"conditions": [READY, LATER], "restartCount": 2, "later": {"x": [1]}}


def test_status_with_foreign_fields_settles() -> None:
    observed, _ = read(next(case for case in CASES if case.stem == "create"))
    [(uid, box)] = observed.desired.sandboxes.items()
    box = replace(box, obj=replace(box.obj, status={"conditions": [LATER], "later": 1}))

    def planned(snapshot: Snapshot) -> dict[str, object]:
        [write] = decide(snapshot).writes.statuses
        return dict(write.status)

    status = planned(changed_snapshot(observed, sandboxes={uid: box}))
    assert (status["later"], status["conditions"][-1]) == (1, LATER)  # type: ignore[index]
    again = replace(box, obj=replace(box.obj, status=status))
    assert decide(changed_snapshot(observed, sandboxes={uid: again})).writes.statuses == ()


def test_blind_pass_keeps_what_was_observed_last() -> None:
    box = sandbox("a", {"template": {"image": "a:1"}})
    observed_instance = instance(box, memory(box))
    [before] = decide(snapshot([box], [container(box)], instances={box.obj.uid: observed_instance})).writes.statuses
    assert before.status.keys() >= {"instanceRef", "image"}
    box = replace(box, obj=replace(box.obj, status=before.status, generation=2))
    blind = snapshot([box], [], instances={box.obj.uid: observed_instance}, blind="not observed yet")
    [after] = decide(blind).writes.statuses
    observed = ("instanceRef", "image", "resources", "startTime")
    assert [after.status.get(name) for name in observed] == [before.status.get(name) for name in observed]
    assert after.status["observedGeneration"] == 2


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ({"launch": "Cold: pool `warm` had no member: none"}, ("Cold", "pool `warm` had no member: none")),
        ({"launch": "Cold", "launch_reason": "a: b"}, ("Cold", "a: b")),
        ({"launch": "Warm"}, ("Warm", "")),
    ],
)
def test_launch_of_an_older_record_is_read(stored: dict[str, str], shown: tuple[str, str]) -> None:
    state = state_from_json(dict(stored))
    assert (state.claim.launch, state.claim.launch_reason) == shown
    assert state_from_json(state_to_json(state)) == state
    box = sandbox("a", {"template": {"image": "a:1"}})
    observed = instance(
        box, changed_state(memory(box), launch=state.claim.launch, launch_reason=state.claim.launch_reason)
    )
    [write] = decide(snapshot([box], [container(box)], instances={box.obj.uid: observed})).writes.statuses
    assert (write.status["launchType"], write.status["launchReason"]) == shown


def test_contexts_are_listed_until_a_suspension_ends_them() -> None:
    box = sandbox("a", {"template": {"image": "a:1"}})
    observed, running_container = instance(box, memory(box)), container(box)
    run = running_container.id, running_container.started_at
    activity = {box.obj.uid: Activity(contexts=(("mine", "bash"), ("python", "python")), contexts_run=run)}

    def planned(box: Sandbox, *containers: Container, **more: Any) -> dict[str, Any]:
        observed_snapshot = snapshot([box], list(containers), instances={box.obj.uid: observed})
        [write] = decide(changed_snapshot(observed_snapshot, **more)).writes.statuses
        return dict(write.status)

    running_status = planned(box, running_container, activity=activity)
    assert [context["name"] for context in running_status["contexts"]] == ["mine", "python"]
    # A daemon that has just started knows of none, and keeps those of the same run.
    later = replace(box, obj=replace(box.obj, status={**running_status, "restartCount": 7}))
    assert planned(later, running_container)["contexts"] == running_status["contexts"]
    suspended = sandbox("a", {"template": {"image": "a:1"}, "runState": "Suspended"})
    suspended = replace(suspended, obj=replace(suspended.obj, status=running_status))
    end = planned(suspended, replace(running_container, state=State.EXITED), activity=activity)
    message = next(condition["message"] for condition in end["conditions"] if condition["type"] == "Suspended")
    assert message == "runState is Suspended; that ended 2 code contexts (mine, python)"
    assert "contexts" not in end
