"""Lifecycle of one sandbox: rest, graceful stop, deadline, time-to-live, and the reaping of idle ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action, SignalContainer, StartContainer
from controller.kinds.planning.instance_state import GenerationTime, InstanceState, StopRequest
from controller.kinds.runtime.run import Run
from controller.plan.base import pressure
from controller.plan.base.backoff import waits
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext, replace_if_changed
from controller.plan.sandbox import disk_limit, files, hibernation, idle
from controller.plan.sandbox.deaths import was_asked_to_stop

DEADLINE = "DeadlineExceeded"
_DELETED = "deleted when idle (lifecycle.onIdle)"
_EXPIRED = "stopped for good: its lifecycle.activeDeadlineSeconds have passed"


@dataclass(frozen=True, slots=True)
class Rest:
    """Reason why a sandbox does not run.

    `reason` and `message` are its conditions' once stopped, `stopping` until then. `end` is the reason of the end in
    its death record. `finished`: it stays so until its spec changes. `restarts`: it is started again as soon as it has
    stopped.
    """

    reason: str
    message: str
    stopping: str = "Suspending"
    end: str = "Stopped"
    finished: bool = False
    restarts: bool = False


# Of one whose spec can't be read: that of specs which set none.
_DEFAULT_GRACE_SECONDS = 10
_SUSPENDED = Rest("Suspended", "runState is Suspended")


def decide_with_timers(context: ReconcileContext, decide: Callable[[ReconcileContext], Decision]) -> Decision:
    """Return the decision of `decide` under the lifecycle timers, with the next timer.

    The deadline comes first and ends it for good; then the limit of its disk, until its spec changes; then idleness.
    """
    was_expired = is_expired(context)
    context = replace_if_changed(context, state=_notice_deadline(context))
    if is_expired(context):
        decision = _with_deadline(context, decide(context))
        return decision if was_expired else decision.with_event(context.event(DEADLINE, _EXPIRED, warning=True))
    was_over_limit = disk_limit.is_exceeded(context)
    context = replace_if_changed(context, state=disk_limit.observe(context))
    if disk_limit.is_exceeded(context):
        decision = _with_deadline(context, decide(context))
        return (
            decision
            if was_over_limit
            else decision.with_event(context.event(disk_limit.REASON, disk_limit.limit_message(context), warning=True))
        )
    idleness = idle.observe(context)
    # `decide` goes by the state: a sandbox noted as idled is one that is to rest.
    context = replace_if_changed(context, state=idleness.state)
    # Files in memory that can't be saved keep it running: an idle timeout must not lose them.
    blocked_stop = files.blocked_stop(context) if idleness.due and _suspends_idle(context) else None
    if idleness.due and blocked_stop is None:
        return _reap_idle(context, decide)
    decision = _with_deadline(context, decide(context))
    if blocked_stop is not None and blocked_stop.until is not None:
        decision = decision.with_timer(blocked_stop.until)
    decision = replace_if_changed(decision, sample=idleness.sample, hold=decision.hold or _hold(context, decision))
    if idleness.woken:
        rest_word = "hibernated" if hibernation.is_frozen(context) else "suspended"
        decision = decision.with_event(context.event("Woken", f"{rest_word} when idle, and asked for again"))
    return decision if idleness.timer is None else decision.with_timer(idleness.timer)


def _reap_idle(context: ReconcileContext, decide: Callable[[ReconcileContext], Decision]) -> Decision:
    """Stop or delete it, because nobody uses it."""
    assert context.spec is not None
    assert context.container is not None
    evicted_for = pressure.short_of(context)
    action = idle_action(context, evicted_for)
    if action == "Delete":
        message = f"not used for {context.spec.lifecycle.idle_timeout_seconds} s"
        event = context.event(idle.REASON, f"{message}: {_DELETED}")
        return Decision(
            context.state, idle.REASON, message, events=(event,), delete=True, reaped="idle", hold=context.container.run
        )
    state = replace(
        context.state,
        lifecycle=replace(
            context.state.lifecycle,
            idled=GenerationTime(context.obj.generation, context.now),
            evicted_for=evicted_for,
        ),
        memory=replace(
            context.state.memory,
            hibernation=hibernation.begun_hibernation(context.container, context.now)
            if action == "Hibernate"
            else None,
        ),
    )
    context = replace(context, state=state)
    reason, message = idle.stop_reason(context)
    decision = _with_deadline(context, decide(context))
    is_evicted = reason == idle.EVICTED
    outcome = "suspended; the next `paddock exec` starts it"
    if action == "Hibernate":
        outcome = "hibernated; the next use wakes it"
    event = context.event(reason, f"{message}: {outcome}", warning=is_evicted)
    reaped = "pressure" if is_evicted else "idle"
    return replace(decision.with_event(event), reaped=reaped, hold=decision.hold or _hold(context, decision))


def idle_action(context: ReconcileContext, evicted_for: tuple[str, ...]) -> str:
    """Return what idleness does: Suspend, Hibernate or Delete. What is evicted has to give its memory back at once."""
    choice = context.spec.lifecycle.on_idle if context.spec else "Suspend"
    if choice == "Delete":
        return choice
    return "Hibernate" if choice != "Suspend" and not evicted_for and hibernation.is_possible(context) else "Suspend"


def _suspends_idle(context: ReconcileContext) -> bool:
    """Return True if idleness would stop it, so that its files in memory have to be saved."""
    return idle_action(context, pressure.short_of(context)) == "Suspend"


def _hold(context: ReconcileContext, decision: Decision) -> Run | None:
    """Return the run that nobody may begin to use any more, because idleness ends it."""
    container = context.container
    if container is None or container.state not in ALIVE or decision.state.runs.stop.reason not in idle.REASONS:
        return None
    return container.run if was_asked_to_stop(container, decision.state) else None


def rest_state(context: ReconcileContext) -> Rest | None:
    """Return why it is not to run, None if it is to."""
    spec = context.spec
    if context.stays_hibernated and hibernation.is_frozen(context):
        return None
    if spec is None or spec.run_state == "Suspended":
        return _SUSPENDED
    if is_expired(context):
        message = f"activeDeadlineSeconds ({spec.lifecycle.active_deadline_seconds}) have passed"
        return Rest(reason=DEADLINE, message=message, stopping="Stopping", end=DEADLINE, finished=True)
    if disk_limit.is_exceeded(context):
        return Rest(
            reason=disk_limit.REASON,
            message=disk_limit.limit_message(context),
            stopping="Stopping",
            end="Evicted",
            finished=True,
        )
    if hibernation.is_lost(context):
        return Rest(hibernation.HIBERNATED, hibernation.LOST_MESSAGE)
    if idle.is_asleep(context) and not hibernation.is_to_hibernate(context):
        reason, message = idle.stop_reason(context)
        return Rest(reason, f"{message}; the next `paddock exec` starts it", end=reason)
    return _begun_stop(context)


def _begun_stop(context: ReconcileContext) -> Rest | None:
    """Return the rest that finishes a stop which was begun, though it is to run again: it must not end later in use."""
    container, reason = context.container, context.state.runs.stop.reason
    if container is None or container.state not in ALIVE or not was_asked_to_stop(container, context.state):
        return None
    # Stops for failed probes are finished by probes.py.
    if context.state.runs.ended_by_probes(container.run) or reason not in (
        *idle.REASONS,
        DEADLINE,
        "Stopped",
        "Superseded",
    ):
        return None
    return Rest(reason, f"it was being stopped ({reason}); it is started again after that", end=reason, restarts=True)


def stop(
    context: ReconcileContext, container: Container, why: str, reason: str, end: str = "Stopped"
) -> Decision | None:
    """Send its image's stop signal (else TERM), or wait for the grace period.

    None once that is over (or there is none): the caller may use force. A sandbox whose network nothing confines gets
    no grace. `reason` is its condition's meanwhile, `end` the reason in its death record.
    """
    grace = context.spec.lifecycle.shutdown_grace_period_seconds if context.spec else _DEFAULT_GRACE_SECONDS
    if context.unconfined and context.network.on_guard_lost != "report":
        return None
    was_asked = was_asked_to_stop(container, context.state)
    until = context.state.runs.stop.at + grace
    if was_asked and waits(context.now, until, grace):
        return Decision(context.state, reason, f"asked to stop ({why}); killed if still there by then", until=until)
    if was_asked or grace == 0:
        return None
    actions: list[Action] = []
    if container.state is State.PAUSED:  # a frozen process cannot act on a signal
        actions.append(hibernation.thaw(context, container, why))
    signal = container.stop_signal or "TERM"
    actions.append(
        SignalContainer(uid=context.obj.uid, name=container.name, container_id=container.id, signal=signal, why=why)
    )
    state = asked_to_stop(hibernation.waking(context), container, context.now, end)
    return Decision(state, reason, why, tuple(actions), until=context.now + grace)


def asked_to_stop(state: InstanceState, container: Container, now: float, end: str = "Stopped") -> InstanceState:
    """Return the state in which this container's end is Paddock's own doing, for the reason `end`."""
    return replace(state, runs=replace(state.runs, stop=StopRequest(container.run, now, end)))


def is_expired(context: ReconcileContext) -> bool:
    """Return True if its deadline passed in this generation of its spec."""
    return context.state.lifecycle.expired.generation == context.obj.generation


def _notice_deadline(context: ReconcileContext) -> InstanceState:
    """Return the state with its deadline, if that has passed. A new generation, or a suspension, starts afresh."""
    state, spec = context.state, context.spec
    if state.lifecycle.expired.generation and not is_expired(context):
        lifecycle = replace(state.lifecycle, expired=state.lifecycle.expired._replace(generation=0))
        state = replace(state, lifecycle=lifecycle, runs=replace(state.runs, first_start=0.0))
    if spec is not None and spec.run_state == "Suspended" and state.runs.first_start:
        state = replace(state, runs=replace(state.runs, first_start=0.0))
    due = _deadline(replace_if_changed(context, state=state))
    if due is None or context.now < due or is_expired(context):
        return state
    expiry = GenerationTime(context.obj.generation, context.now)
    return replace(state, lifecycle=replace(state.lifecycle, expired=expiry))


def _deadline(context: ReconcileContext) -> float | None:
    """Return the time of its deadline. A start in the future means that the clock was set back: it counts from now."""
    deadline_seconds = context.spec.lifecycle.active_deadline_seconds if context.spec else None
    if deadline_seconds is None or not context.state.runs.first_start:
        return None
    return min(context.state.runs.first_start, context.now) + deadline_seconds


def _with_deadline(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with its first start and its deadline as a timer, or with the TTL of a finished one."""
    lifecycle = context.spec.lifecycle if context.spec else None
    if lifecycle is None:
        return decision
    if decision.finished:
        runs = replace_if_changed(decision.state.runs, first_start=0.0)  # another run counts from its own start
        decision = replace_if_changed(decision, state=replace_if_changed(decision.state, runs=runs))
        ttl_seconds = lifecycle.ttl_seconds_after_finished
        return decision if ttl_seconds is None else _expire_finished(context, decision, ttl_seconds)
    if lifecycle.active_deadline_seconds is None or (context.spec and context.spec.run_state == "Suspended"):
        return decision
    decision = replace_if_changed(decision, state=_with_first_start(context, decision))
    due = _deadline(replace_if_changed(context, state=decision.state))
    return decision if due is None or is_expired(context) else decision.with_timer(due)


def _with_first_start(context: ReconcileContext, decision: Decision) -> InstanceState:
    """Return the state with its first start: the one decided now, or that of a run that goes on.

    A run that began before the sandbox was created was claimed with it, and the time before is not the sandbox's.
    """
    container = context.container
    if decision.state.runs.first_start:
        return decision.state
    if any(isinstance(action, StartContainer) for action in decision.actions):
        return replace(decision.state, runs=replace(decision.state.runs, first_start=context.now))
    if container is not None and container.state in ALIVE and not was_asked_to_stop(container, decision.state):
        claimed_at = min(context.obj.created_at, context.now)
        first_start = max(container.started_at, claimed_at)
        return replace(decision.state, runs=replace(decision.state.runs, first_start=first_start))
    return decision.state


def _expire_finished(context: ReconcileContext, decision: Decision, ttl_seconds: int) -> Decision:
    """Delete a finished sandbox when its TTL is over, or set the timer for it."""
    end = decision.state.runs.last_end
    finished_at = max(
        end.finished_at if end else 0.0, decision.state.lifecycle.expired.at if is_expired(context) else 0.0
    )
    due = min(finished_at, context.now) + ttl_seconds
    if context.now < due:
        return decision.with_timer(due)
    event = context.event("TTLExpired", f"deleted {ttl_seconds} s after it finished (ttlSecondsAfterFinished)")
    return replace(decision, delete=True, reaped="ttl", events=(*decision.events, event))
