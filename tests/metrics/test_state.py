"""The one word for a sandbox's state."""

from dataclasses import replace

import pytest

from controller.kinds.observed.observed import FrozenMemory, State
from controller.metrics.catalogue.objects import STATES
from controller.metrics.state import is_hibernated, known_conditions, sandbox_state, waiting_reason
from tests.metrics.made_up import conditions, container, sandbox

CASES = [
    # what is stored, what is seen, the word
    ({}, None, "Pending"),
    ({"Ready": "False/Pending"}, None, "Pending"),
    ({"Ready": "False/QuotaExceeded"}, None, "Pending"),
    ({"Accepted": "False/Invalid"}, None, "Failed"),
    ({"Degraded": "True/ImagePullFailed"}, None, "Failed"),
    ({"Ready": "False"}, State.CREATED, "Starting"),
    ({}, State.RUNNING, "Starting"),
    ({"Ready": "False/NotReady"}, State.RUNNING, "Starting"),
    ({"Ready": "True"}, State.RUNNING, "Running"),
    ({"Ready": "True", "Degraded": "True/ResizeFailed"}, State.RUNNING, "Running"),
    ({"Ready": "Unknown/DockerUnavailable"}, State.RUNNING, "Running"),
    ({"Ready": "True"}, State.PAUSED, "Paused"),
    ({"Ready": "False/Hibernated"}, State.PAUSED, "Hibernated"),
    ({"Ready": "False", "Suspended": "True"}, State.EXITED, "Suspended"),
    ({"Ready": "False", "Suspended": "True"}, None, "Suspended"),
    ({"Ready": "False", "Finished": "True/Completed"}, State.EXITED, "Suspended"),
    ({"Ready": "False", "Finished": "True/Error"}, State.EXITED, "Failed"),
    ({"Ready": "False/CrashLoopBackOff"}, State.EXITED, "Failed"),
    ({"Ready": "True"}, State.EXITED, "Starting"),
    ({"Ready": "True"}, State.DEAD, "Starting"),
    ({"Ready": "True"}, State.UNKNOWN, "Running"),
    ({"Ready": "False"}, State.UNKNOWN, "Pending"),
    ({"Ready": "False"}, State.REMOVING, "Pending"),
]


def test_a_paused_one_in_swap_is_hibernated() -> None:
    obj = sandbox("box", status={"conditions": conditions(Ready="False/Hibernated")}).obj
    frozen = replace(container(obj, state=State.PAUSED), frozen_memory=FrozenMemory(1 << 20, 99 << 20))
    assert is_hibernated([frozen])
    assert sandbox_state(replace(obj, status={}), [frozen]) == "Hibernated"
    assert not is_hibernated([replace(frozen, frozen_memory=FrozenMemory(99 << 20, 0))])


@pytest.mark.parametrize(("stored", "seen", "word"), CASES)
def test_state(stored: dict[str, str], seen: State | None, word: str) -> None:
    obj = sandbox("box", status={"conditions": conditions(**stored)}).obj
    containers = [] if seen is None else [container(obj, state=seen)]
    assert sandbox_state(obj, containers) == word
    assert sandbox_state(replace(obj, deleted_at=1.0), containers) == "Terminating"


def test_a_sandbox_meant_to_stand_still_is_suspended_even_while_nobody_can_look() -> None:
    obj = sandbox("box", status={"conditions": conditions(Ready="Unknown", Suspended="False")}).obj
    obj = replace(obj, spec={**obj.spec, "runState": "Suspended"})
    assert sandbox_state(obj, [container(obj, state=State.EXITED)]) == "Suspended"
    assert sandbox_state(obj, [container(obj, state=State.RUNNING)]) == "Running"


def test_every_state_is_reached() -> None:
    assert {word for _, _, word in CASES} | {"Terminating"} == set(STATES)


def test_of_several_containers_the_running_one_counts_then_the_newest() -> None:
    obj = sandbox("box", status={"conditions": conditions(Ready="True")}).obj
    old = container(obj, state=State.RUNNING, created_at=1)
    dead = container(obj, state=State.EXITED, created_at=2)
    assert sandbox_state(obj, [dead, old]) == sandbox_state(obj, [old, dead]) == "Running"
    paused = container(obj, state=State.PAUSED, created_at=3)
    assert sandbox_state(obj, [old, paused]) == sandbox_state(obj, [paused, old]) == "Paused"


def test_waiting_reason_is_one_of_the_catalogues_or_none() -> None:
    def reason(**stored: str) -> str:
        return waiting_reason(sandbox("box", status={"conditions": conditions(**stored)}).obj)

    assert reason(Scheduled="False/QuotaExceeded", Ready="False/Pending") == "QuotaExceeded"
    assert reason(Ready="Unknown/DockerUnavailable") == "DockerUnavailable"
    assert reason(Ready="True/CrashLoopBackOff") == ""
    assert reason(Ready="False/SomethingElse") == ""
    assert reason(Ready="Unknown/EngineUnreachable") == "DockerUnavailable"
    assert reason(Accepted="False/Refused", Ready="False/Refused") == "ConfigError"
    assert waiting_reason(sandbox("box", status={}).obj) == ""


def test_unknown_conditions_and_unknown_types_are_left_out() -> None:
    stored = conditions(Ready="True", Secured="Unknown", Degraded="False", Sparkling="True")
    obj = sandbox("box", status={"conditions": stored}).obj
    assert dict(known_conditions(obj)) == {"Ready": True, "Degraded": False}
    absent = conditions(Ready="True", NetworkReady="True/NoNetwork")
    assert dict(known_conditions(sandbox("box", status={"conditions": absent}).obj)) == {"Ready": True}
