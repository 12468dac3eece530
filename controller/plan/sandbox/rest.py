"""Why a sandbox is not to run now: its spec says so, its time is over, or nobody uses it."""

from dataclasses import dataclass

from controller.plan.common.reconcile_context import Case
from controller.plan.sandbox import deadline, disk, idle
from controller.plan.sandbox.deaths import was_asked_to_stop
from controller.plan.sandbox.stopping import ALIVE


@dataclass(frozen=True, slots=True)
class Rest:
    """`reason` and `message` are its conditions' once it has stopped, `stopping` the reason until then.

    `end` is how the end that this makes is recorded; `finished`: it stays so until its spec changes; `half`: it is to
    run again as soon as it has stopped.
    """

    reason: str
    message: str
    stopping: str = "Suspending"
    end: str = "Stopped"
    finished: bool = False
    half: bool = False


def rest(case: Case) -> Rest | None:
    """Why it is not to run, None when it is to."""
    spec = case.spec
    if spec is None or spec.run_state == "Suspended":
        return Rest("Suspended", "runState is Suspended")
    if deadline.expired(case):
        words = f"activeDeadlineSeconds ({spec.lifecycle.active_deadline_seconds}) have passed"
        return Rest(deadline.REASON, words, "Stopping", deadline.REASON, finished=True)
    if disk.exceeded(case):
        return Rest(disk.REASON, disk.told(case), "Stopping", "Evicted", finished=True)
    if idle.asleep(case):
        reason, words = idle.told(case)
        return Rest(reason, f"{words}; the next `paddock exec` starts it", end=reason)
    return _half_stopped(case)


def _half_stopped(case: Case) -> Rest | None:
    """A stop that was begun is finished, though it is wanted again: it must not end under somebody's hands later."""
    container, reason = case.container, case.memory.stop_reason
    if container is None or container.state not in ALIVE or not was_asked_to_stop(container, case.memory):
        return None
    if reason not in (*idle.REASONS, deadline.REASON):
        return None
    return Rest(reason, f"it was being stopped ({reason}); it is started again after that", end=reason, half=True)
