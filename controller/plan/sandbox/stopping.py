"""Stopping a container without ever waiting for it: TERM now, a wake when its grace is over, then KILL or removal."""

from dataclasses import replace

from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action, SignalContainer, UnpauseContainer
from controller.kinds.planning.instance_record import Memory
from controller.plan.common.backoff import waits
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.sandbox.deaths import was_asked_to_stop

ALIVE = (State.RUNNING, State.PAUSED, State.RESTARTING)


def stop(case: Case, container: Container, why: str, reason: str, end: str = "Stopped") -> Decision | None:
    """The next rung of the ladder; None once its grace is over (or there is none): the caller may use force.

    One whose network nothing confines gets none. `reason` is how the object stands meanwhile, `end` what its death
    record will say.
    """
    grace = case.spec.lifecycle.shutdown_grace_period_seconds if case.spec else 10
    if case.unconfined and case.around.on_guard_lost != "report":
        return None
    asked = was_asked_to_stop(container, case.memory)
    until = case.memory.asked_to_stop_at + grace
    if asked and waits(case.now, until, grace):
        return Decision(case.memory, reason, f"asked to stop ({why}); killed if still there by then", until=until)
    if asked or grace == 0:
        return None
    actions: list[Action] = []
    if container.state is State.PAUSED:  # a frozen process cannot act on a signal
        actions.append(UnpauseContainer(case.obj.uid, container.name, container.id, why))
    actions.append(SignalContainer(case.obj.uid, container.name, container.id, "TERM", why))
    memory = asked_to_stop(case.memory, container, case.now, end)
    return Decision(memory, reason, why, tuple(actions), until=case.now + grace)


def asked_to_stop(memory: Memory, container: Container, now: float, end: str = "Stopped") -> Memory:
    """The memory that this container's end will be our own doing, for the reason `end`."""
    run = (container.id, container.started_at)
    return replace(memory, asked_to_stop=run, asked_to_stop_at=now, stop_reason=end)
