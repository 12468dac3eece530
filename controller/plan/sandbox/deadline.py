"""How long a sandbox may live: lifecycle.activeDeadlineSeconds while it runs, ttlSecondsAfterFinished afterwards."""

from dataclasses import replace

from controller.kinds.planning.action import StartContainer
from controller.kinds.planning.instance_record import Memory
from controller.plan.common.altered import altered
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.sandbox.deaths import was_asked_to_stop
from controller.plan.sandbox.stopping import ALIVE

REASON = "DeadlineExceeded"


def expired(case: Case) -> bool:
    """Whether its time was over in this generation of its spec."""
    return case.memory.expired_generation == case.obj.generation


def notice(case: Case) -> Memory:
    """The memory with its deadline in it, if that has passed. A new generation, or a suspension, starts afresh."""
    memory, spec = case.memory, case.spec
    if memory.expired_generation and not expired(case):
        memory = replace(memory, expired_generation=0, first_start=0.0)
    if spec is not None and spec.run_state == "Suspended" and memory.first_start:
        memory = replace(memory, first_start=0.0)
    due = _due(altered(case, memory=memory))
    if due is None or case.now < due or expired(case):
        return memory
    return replace(memory, expired_generation=case.obj.generation, expired_at=case.now)


def _due(case: Case) -> float | None:
    """When its time is over. A start that lies ahead tells that the clock was set back: then it counts from now."""
    allowed = case.spec.lifecycle.active_deadline_seconds if case.spec else None
    if allowed is None or not case.memory.first_start:
        return None
    return min(case.memory.first_start, case.now) + allowed


def timed(case: Case, made: Decision) -> Decision:
    """The decision with the start of its time in it, and its end as a timer; and what becomes of a finished one."""
    lifecycle = case.spec.lifecycle if case.spec else None
    if lifecycle is None:
        return made
    if made.finished:
        made = altered(made, memory=altered(made.memory, first_start=0.0))  # should it run again, it counts anew
        return made if lifecycle.ttl_seconds_after_finished is None else _outlived(case, made)
    if lifecycle.active_deadline_seconds is None or (case.spec and case.spec.run_state == "Suspended"):
        return made
    made = altered(made, memory=_started(case, made))
    due = _due(altered(case, memory=made.memory))
    return made if due is None or expired(case) else made.wake_at(due)


def _started(case: Case, made: Decision) -> Memory:
    """The memory of its first start, which is the one that is asked for now, or that of a run that goes on."""
    container = case.container
    if made.memory.first_start:
        return made.memory
    if any(isinstance(each, StartContainer) for each in made.actions):
        return replace(made.memory, first_start=case.now)
    if container is not None and container.state in ALIVE and not was_asked_to_stop(container, made.memory):
        return replace(made.memory, first_start=container.started_at)
    return made.memory


def _outlived(case: Case, made: Decision) -> Decision:
    """Delete a finished sandbox when its time to be looked at is over, or say when that will be."""
    assert case.spec is not None
    end, ttl = made.memory.last_end, case.spec.lifecycle.ttl_seconds_after_finished or 0
    finished_at = max(end.finished_at if end else 0.0, made.memory.expired_at if expired(case) else 0.0)
    due = min(finished_at, case.now) + ttl
    if case.now < due:
        return made.wake_at(due)
    event = case.event("TTLExpired", f"deleted {ttl} s after it finished (ttlSecondsAfterFinished)")
    return replace(made, delete=True, reaped="ttl", events=(*made.events, event))
