"""A sandbox's lifecycle timers, laid around the decision for it. Called by plan/sandbox/sandbox.py."""

from collections.abc import Callable
from dataclasses import replace

from controller.kinds.observed.activity import Run
from controller.plan.capacity import eviction
from controller.plan.common.altered import altered
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.sandbox import deadline, disk, idle
from controller.plan.sandbox.deaths import was_asked_to_stop
from controller.plan.sandbox.stopping import ALIVE

_DELETED = "deleted when idle (lifecycle.onIdle)"
_EXPIRED = "stopped for good: its lifecycle.activeDeadlineSeconds have passed"


def timed(case: Case, decide: Callable[[Case], Decision]) -> Decision:
    """Decide with what the timers say, and say when they are due next."""
    was_expired = deadline.expired(case)
    case = altered(case, memory=deadline.notice(case))
    if deadline.expired(case):
        made = deadline.timed(case, decide(case))
        return made if was_expired else made.telling(case.event(deadline.REASON, _EXPIRED, warning=True))
    was_overfull = disk.exceeded(case)
    case = replace(case, memory=disk.notice(case))
    if disk.exceeded(case):
        made = deadline.timed(case, decide(case))
        return made if was_overfull else made.telling(case.event(disk.REASON, disk.told(case), warning=True))
    found = idle.look(case)
    case = altered(case, memory=found.memory)
    if found.due:
        return _reaped(case, decide)
    made = deadline.timed(case, decide(case))
    made = altered(made, sample=found.sample, hold=_hold(case, made))
    if found.woken:
        made = made.telling(case.event("Woken", "suspended when idle, and asked for again"))
    return made if found.timer is None else made.wake_at(found.timer)


def _reaped(case: Case, decide: Callable[[Case], Decision]) -> Decision:
    """Stop it, or have it deleted, because nobody uses it."""
    assert case.spec is not None
    assert case.container is not None
    if case.spec.lifecycle.on_idle == "Delete":
        words = f"not used for {case.spec.lifecycle.idle_timeout_seconds} s"
        run = (case.container.id, case.container.started_at)
        event = case.event(idle.REASON, f"{words}: {_DELETED}")
        return Decision(case.memory, idle.REASON, words, events=(event,), delete=True, reaped="idle", hold=run)
    memory = replace(
        case.memory, idled_generation=case.obj.generation, idled_at=case.now, evicted=eviction.short_of(case)
    )
    case = replace(case, memory=memory)
    reason, words = idle.told(case)
    made = deadline.timed(case, decide(case))
    evicted = reason == eviction.REASON
    event = case.event(reason, f"{words}: suspended; the next `paddock exec` starts it", warning=evicted)
    return replace(made.telling(event), reaped="pressure" if evicted else "idle", hold=_hold(case, made))


def _hold(case: Case, made: Decision) -> Run | None:
    """The run that nobody may begin to use any more, because idleness ends it."""
    container = case.container
    if container is None or container.state not in ALIVE or made.memory.stop_reason not in idle.REASONS:
        return None
    return (container.id, container.started_at) if was_asked_to_stop(container, made.memory) else None
