"""Idleness: the last use of a sandbox, and the time to stop it (lifecycle.idleTimeoutSeconds, onIdle).

In use is a sandbox with an open stream (command, file operation, port connection, followed log), at each change of its
spec, at its start, and when its CPU time since then averages above a floor. CPU is sampled twice per timeout, when the
clock starts and when it runs out, and never polled; an unreadable sample counts as use.
"""

from dataclasses import dataclass, replace

from controller.kinds.observed.activity import Activity, CpuSample, StoredUse
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.instance_state import InstanceState
from controller.plan.base import pressure
from controller.plan.base.reconcile_context import ReconcileContext
from controller.plan.sandbox.deaths import was_asked_to_stop

REASON = "IdleReaped"
EVICTED = "Evicted"
REASONS = (REASON, EVICTED)
# The store hears of use at most this often for one object: so much of it a crash of the daemon may forget.
NOTE_SECONDS = 30.0
CPU_FLOOR_CORES = 0.01
SUSPEND_AFTER_SECONDS = 86400  # the default of lifecycle.suspendAfterSeconds
# Samples nearer to each other than this (or the timeout, if that is shorter) say nothing.
_LEAST_WINDOW_SECONDS = 60.0
_UNSEEN = Activity()


@dataclass(frozen=True, slots=True)
class Idleness:
    """Idleness of one sandbox. `timer` is the time of the next check; `sample`: sample its CPU for the time since then.

    `due`: it is time to stop it. `woken`: it was stopped for idleness, and is asked for now.
    """

    state: InstanceState
    timer: float | None = None
    sample: float | None = None
    due: bool = False
    woken: bool = False


def is_asleep(context: ReconcileContext) -> bool:
    """Return True if it was stopped for idleness, and nobody has asked for it since."""
    return context.state.lifecycle.idled.generation == context.obj.generation


def stop_reason(context: ReconcileContext) -> tuple[str, str]:
    """Return the reason and message of its stop."""
    timeout = context.spec.lifecycle.idle_timeout_seconds if context.spec else 0
    if not context.state.lifecycle.evicted_for:
        return REASON, f"not used for {timeout} s"
    return EVICTED, f"the host was short of {' and '.join(context.state.lifecycle.evicted_for)}, and it was not used"


def stop_message(context: ReconcileContext) -> str:
    """Return the message of its stop."""
    _, message = stop_reason(context)
    return message


def observe(context: ReconcileContext) -> Idleness:
    """Return its idleness, with the state updated."""
    state, activity = context.state, context.activity or _UNSEEN
    if state.lifecycle.idled.generation:
        if is_asleep(context) and (context.stays_hibernated or not activity.asking):
            return _observe_asleep(context)
        lifecycle = replace(state.lifecycle, idled=state.lifecycle.idled._replace(generation=0), evicted_for=())
        return Idleness(replace(state, lifecycle=lifecycle), woken=bool(activity.asking))
    timeout = pressure.timeout_seconds(context.spec, context.short_of)
    if timeout is None or context.spec is None or context.spec.run_state != "Running":
        return Idleness(state)  # nothing ever stops it for idleness
    use, next_note_at = _use_to_store(context)
    state = replace(state, lifecycle=replace(state.lifecycle, use=use))
    container = context.container
    runs = container is not None and container.state is State.RUNNING and not was_asked_to_stop(container, state)
    # What does not run has nothing to stop, and an open stream is use: only the note is due.
    if container is None or not runs or activity.open:
        return Idleness(state, next_note_at)
    # A use before a clock jump (`void`) has a time that means nothing now.
    since = max(
        activity.last_at, *(moment for moment in _use_times(use, container, context.now) if moment not in activity.void)
    )
    if since > context.now:  # the clock was set back, or the engine's is ahead
        return Idleness(state, _earlier(next_note_at, min(since, context.now + timeout)))
    return _observe_run(context, state, container, since=since, timeout=timeout, next_note_at=next_note_at)


def _observe_asleep(context: ReconcileContext) -> Idleness:
    """Return the idleness of one that nobody asks for: hibernated for too long, it is suspended."""
    state, spec = context.state, context.spec
    hibernation = state.memory.hibernation
    if hibernation is None or spec is None or hibernation.phase != "Hibernated":
        return Idleness(state)
    due = hibernation.at + (spec.lifecycle.suspend_after_seconds or SUSPEND_AFTER_SECONDS)
    if hibernation.at <= context.now < due:
        return Idleness(state, timer=due)
    return Idleness(replace(state, memory=replace(state.memory, hibernation=replace(hibernation, phase="Ending"))))


def _use_times(use: StoredUse, container: Container, now: float) -> tuple[float, ...]:
    """Return the times of the stored use and of the run's start. One in the future was taken before the clock was set.

    While the use is known, such a start says nothing.
    """
    return (use.at,) if use.at <= now < container.started_at else (use.at, container.started_at)


def _observe_run(
    context: ReconcileContext,
    state: InstanceState,
    container: Container,
    since: float,
    timeout: int,
    next_note_at: float | None,
) -> Idleness:
    """Return the idleness of a run without a stream: whether its CPU was used since then, its samples tell."""
    mark, newest = _samples(context.activity or _UNSEEN, container, since)
    if mark is None or newest is None:
        return Idleness(state, next_note_at, sample=since)
    # An average over less than the window would take a moment's work for use, or a pause for idleness.
    due = max(since + timeout, mark.at + min(timeout, _LEAST_WINDOW_SECONDS))
    if context.now < due:
        return Idleness(state, _earlier(next_note_at, due))
    if newest.at < due:
        return Idleness(state, next_note_at, sample=since)
    if _is_busy(mark, newest):
        use = StoredUse(newest.at, open=False, noted_at=context.now, generation=context.obj.generation)
        return Idleness(replace(state, lifecycle=replace(state.lifecycle, use=use)), timer=newest.at + timeout)
    return Idleness(state, due=True)


def _use_to_store(context: ReconcileContext) -> tuple[StoredUse, float | None]:
    """Return the use that the store is to keep, and the time of the next write."""
    stored = context.state.lifecycle.use
    activity = context.activity
    now = context.now
    generation = context.obj.generation
    is_open = activity is not None and activity.open > 0
    if stored is None or stored.generation != generation:
        return StoredUse(now, is_open, now, generation), None
    if activity is None:
        # The previous daemon had streams open: they ended with it, or their commands still run. Count from now.
        use = StoredUse(now, open=False, noted_at=now, generation=generation) if stored.open else stored
        return use, None
    if stored.at in activity.void:  # before the clock jumped
        return StoredUse(now if is_open else activity.last_at, is_open, now, generation), None
    if (is_open and stored.open) or (not is_open and not stored.open and activity.last_at <= stored.at):
        return stored, None
    next_note_at = stored.noted_at + NOTE_SECONDS
    if stored.noted_at <= now < next_note_at:
        return stored, next_note_at
    return StoredUse(now if is_open else max(stored.at, activity.last_at), is_open, now, generation), None


def _samples(activity: Activity, container: Container, since: float) -> tuple[CpuSample | None, CpuSample | None]:
    """Return the first and the newest sample of this run since then."""
    run = container.run
    samples = [
        sample
        for sample in (activity.mark, activity.cpu)
        if sample is not None and sample.run == run and sample.at >= since
    ]
    return (samples[0], samples[-1]) if samples else (None, None)


def _is_busy(mark: CpuSample, newest: CpuSample) -> bool:
    """Return True if it used more CPU than the floor; unknown counts as use."""
    if mark.seconds is None or newest.seconds is None:
        return True
    return newest.seconds - mark.seconds > CPU_FLOOR_CORES * (newest.at - mark.at)


def _earlier(first: float | None, second: float) -> float:
    return second if first is None else min(first, second)
