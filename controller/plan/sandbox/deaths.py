"""Ends of containers: their reasons, and the next start by restartPolicy and back-off."""

from collections.abc import Mapping
from dataclasses import replace

from controller.kinds.common.log_tail import GONE
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, End, State
from controller.kinds.planning.instance_state import GenerationTime, InstanceState, Termination
from controller.plan.base.backoff import HEALTHY_SECONDS, crash_delay_seconds

ENDED = (State.EXITED, State.DEAD)
# Ends that Paddock itself caused: the sandbox is started again as soon as it is to run.
_OURS = ("Stopped", "Superseded", "IdleReaped", "Evicted", "DeadlineExceeded")
# Of a process that was killed: 128 and SIGKILL. Any other signal can be handled, and its code be a program's own.
_KILLED = 137
_MEANINGS = {
    126: "its program, or one that it calls, can't be executed",
    127: "its program, or one that it calls, is not in its image",
}
# Between a process's start and the engine's note of it, at most.
_NOTED_SECONDS = 60.0


def end_of(container: Container, state: InstanceState, lost: tuple[float, float] = (0.0, 0.0)) -> Termination:
    """Return the end of an ended container's last run. `lost` is the time when the engine itself was away."""
    recorded = state.runs.last_end
    is_recorded = recorded is not None and recorded.container_id == container.id
    return Termination(
        container_id=container.id,
        exit_code=container.exit_code,
        reason=_reason(container, state, lost),
        started_at=container.started_at,
        finished_at=container.finished_at,
        limits=container.limits,
        generation=state.lifecycle.changed.generation,
        changed_at=state.lifecycle.changed.at,
        restarts=state.runs.restarts,
        log_since=recorded.finished_at if recorded is not None and is_recorded else 0.0,
    )


def _reason(container: Container, state: InstanceState, lost: tuple[float, float]) -> str:
    """Return the reason of an end: Paddock's own first, then what the engine knows, then the exit code."""
    if by_probes := state.runs.ended_by_probes(container.run):
        return by_probes
    if was_asked_to_stop(container, state):
        return state.runs.stop.reason
    # The engine's flag is of any process of the run: one that ended by itself was not killed.
    if container.oom_killed and container.exit_code == _KILLED:
        return "OOMKilled"
    return "EngineLost" if _went_with_engine(container, state, lost) else _by_exit_code(container.exit_code)


def _by_exit_code(exit_code: int) -> str:
    if exit_code == 0:
        return "Completed"
    return "Killed" if exit_code == _KILLED else "Error"


def _went_with_engine(container: Container, state: InstanceState, lost: tuple[float, float]) -> bool:
    """Return True if the engine stopped the container with itself, or was down when the container ended."""
    return _is_end_unseen(container, state) or lost[0] <= container.finished_at <= lost[1]


def _is_end_unseen(container: Container, state: InstanceState) -> bool:
    """Return True if the engine missed the end, as after a host crash: it has the end of an earlier run, or none.

    An end shortly before the start is no sign of that. The engine notes a start once the process runs, and an end as of
    when it was: a process that ends at once has ended some milliseconds before its start (27 of 60 on a busy host).
    """
    recorded = state.runs.last_end
    if recorded is not None and (recorded.container_id, recorded.finished_at) == (container.id, container.finished_at):
        return recorded.started_at != container.started_at
    return container.started_at - container.finished_at > _NOTED_SECONDS


def exit_text(exit_code: int) -> str:
    """Return an exit code, with its meaning where shells and Paddock's init agree on one."""
    meaning = _MEANINGS.get(exit_code, "")
    return f"exit code {exit_code}{f' ({meaning})' if meaning else ''}"


def is_unproven(container: Container | None, state: InstanceState, now: float) -> bool:
    """Return True if it runs again after a failure, and not yet for so long that the failure is forgotten."""
    end = state.runs.last_end
    if container is None or container.state is not State.RUNNING or end is None or not state.runs.crashes:
        return False
    again = (end.container_id, end.started_at) != container.run
    return again and end.reason not in ("Completed", "EngineLost") and now < container.started_at + HEALTHY_SECONDS


def was_asked_to_stop(container: Container, state: InstanceState) -> bool:
    """Return True if Paddock told this run of the container to stop (not an earlier run of the same one)."""
    return state.runs.stop.run == container.run


def is_ours(end: Termination) -> bool:
    """Return True if Paddock itself caused this end."""
    return end.reason in _OURS


def observe_generation(obj: StoredObject, state: InstanceState, now: float) -> InstanceState:
    """Return the state with the spec's generation, and when it was first seen (0: before any record)."""
    if state.lifecycle.changed.generation == obj.generation:
        return state
    if obj.generation == 1:
        return replace(state, lifecycle=replace(state.lifecycle, changed=GenerationTime(1, obj.created_at)))
    return replace(
        state,
        lifecycle=replace(
            state.lifecycle, changed=GenerationTime(obj.generation, now if state.lifecycle.changed.generation else 0.0)
        ),
    )


def observe_run(container: Container, state: InstanceState) -> InstanceState:
    """Return the state with this run; one after an unrequested end, or an out-of-band removal, is a restart."""
    run = container.run
    if not container.started_at or run == state.runs.last:
        return state
    stopped = state.runs.stop.run == state.runs.last and not state.runs.ended_by_probes(state.runs.last)
    ours = not state.runs.last.container_id or stopped
    return replace(state, runs=replace(state.runs, last=run, restarts=state.runs.restarts + (0 if ours else 1)))


def observe_end(container: Container, state: InstanceState, lost: tuple[float, float] = (0.0, 0.0)) -> InstanceState:
    """Return the state with this end in it, counted once however often it is observed."""
    recorded = state.runs.last_end
    if recorded is not None and (recorded.container_id, recorded.finished_at) == (container.id, container.finished_at):
        return _seen_again(container, recorded, state, lost)
    end = end_of(container, state, lost)
    if is_ours(end):
        return replace(state, runs=replace(state.runs, last_end=end))
    healthy = end.finished_at - end.started_at >= HEALTHY_SECONDS
    if end.reason == "EngineLost":  # not the sandbox's fault: neither a crash nor a reset of the count
        return replace(state, runs=replace(state.runs, last_end=end, crashes=0 if healthy else state.runs.crashes))
    return replace(state, runs=replace(state.runs, last_end=end, crashes=1 if healthy else state.runs.crashes + 1))


def _seen_again(
    container: Container, recorded: Termination, state: InstanceState, lost: tuple[float, float]
) -> InstanceState:
    """Return the state with a crash taken back that turns out to be the engine's own shutdown."""
    by_itself = recorded.reason == _by_exit_code(recorded.exit_code)
    if not by_itself or not _went_with_engine(container, state, lost):
        return state
    return replace(
        state,
        runs=replace(
            state.runs, last_end=replace(recorded, reason="EngineLost"), crashes=max(0, state.runs.crashes - 1)
        ),
    )


def observe_removal(ends: Mapping[str, End], state: InstanceState) -> InstanceState:
    """Return the state with the end of a run whose container is gone, if the engine reported it.

    It is no crash: whoever removes a container that runs kills it.
    """
    last_run = state.runs.last
    reported, recorded = ends.get(last_run.container_id), state.runs.last_end
    if reported is None or (recorded is not None and (recorded.container_id, recorded.started_at) == last_run):
        return state
    is_requested = state.runs.stop.run == last_run
    end = Termination(
        container_id=last_run.container_id,
        exit_code=reported.exit_code,
        reason=state.runs.stop.reason if is_requested else _by_exit_code(reported.exit_code),
        started_at=last_run.started_at,
        finished_at=reported.finished_at,
        # Its limits and its log are gone with its container.
        generation=state.lifecycle.changed.generation,
        changed_at=state.lifecycle.changed.at,
        restarts=state.runs.restarts,
        tail=GONE,
    )
    return replace(state, runs=replace(state.runs, last_end=end))


def starts_again(end: Termination, restart_policy: str) -> bool:
    """Return True if a sandbox that should run is started after this end. It always is after a stop by Paddock."""
    if is_ours(end) or restart_policy == "Always":
        return True
    # What was stopped because of its probes has failed, however well it took the TERM.
    failed = end.exit_code != 0 or end.reason in ("Killed", "StartFailed", "EngineLost")
    return restart_policy == "OnFailure" and failed


def start_due(end: Termination, crashes: int) -> float:
    """Return the time at which the next start is due (Unix seconds)."""
    at_once = is_ours(end) or end.reason == "EngineLost"
    return end.finished_at if at_once else end.finished_at + crash_delay_seconds(crashes)
