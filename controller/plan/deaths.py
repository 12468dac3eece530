"""A container's end: which reason it had, whether it is started again, and when. By restartPolicy and back-off."""

from dataclasses import replace

from controller.kinds.instance import Memory, Termination
from controller.kinds.observed import Container, State
from controller.plan.backoff import HEALTHY_SECONDS, crash_delay_seconds

ENDED = (State.EXITED, State.DEAD)
OURS = ("Stopped", "IdleReaped", "DeadlineExceeded")  # ends that Paddock itself made


def end_of(container: Container, memory: Memory) -> Termination:
    """How the last run of an ended container came to its end."""
    return Termination(
        container_id=container.id,
        exit_code=container.exit_code,
        reason=_reason(container, memory),
        started_at=container.started_at,
        finished_at=container.finished_at,
    )


def _reason(container: Container, memory: Memory) -> str:
    if was_asked_to_stop(container, memory):
        return memory.stop_reason
    if container.oom_killed and container.exit_code != 0:
        return "OOMKilled"
    if container.exit_code == 0:
        return "Completed"
    return "Killed" if container.exit_code in (137, 143) else "Error"


def was_asked_to_stop(container: Container, memory: Memory) -> bool:
    """Whether Paddock itself told this run of the container to stop (not an earlier run of the same container)."""
    return memory.asked_to_stop == (container.id, container.started_at)


def notice_run(container: Container, memory: Memory) -> Memory:
    """The memory with this run in it; one that follows an end nobody asked for, or a removal by hand, is a restart."""
    run = (container.id, container.started_at)
    if not container.started_at or run == memory.run:
        return memory
    ours = not memory.run[0] or memory.asked_to_stop == memory.run
    return replace(memory, run=run, restarts=memory.restarts + (0 if ours else 1))


def notice(container: Container, memory: Memory) -> Memory:
    """The memory with this end in it, counted once however often it is looked at."""
    known = memory.last_end
    if known is not None and (known.container_id, known.finished_at) == (container.id, container.finished_at):
        return memory
    end = end_of(container, memory)
    if end.reason in OURS:
        return replace(memory, last_end=end)
    healthy = end.finished_at - end.started_at >= HEALTHY_SECONDS
    return replace(memory, last_end=end, crashes=1 if healthy else memory.crashes + 1)


def starts_again(end: Termination, restart_policy: str) -> bool:
    """Whether a sandbox that should run is started after this end. What Paddock itself stopped always is."""
    if end.reason in OURS or restart_policy == "Always":
        return True
    return restart_policy == "OnFailure" and end.exit_code != 0


def start_due(end: Termination, crashes: int) -> float:
    """Unix seconds at which the next start is due."""
    return end.finished_at if end.reason in OURS else end.finished_at + crash_delay_seconds(crashes)
