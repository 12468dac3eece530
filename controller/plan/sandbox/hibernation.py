"""Hibernation: a sandbox is frozen, and its memory is in swap, until somebody uses it.

A person asks for it (runState: Hibernated), or idleness does (lifecycle.onIdle). It needs a host that can, and a
sandbox that nobody uses. A frozen one holds what stayed in memory; to wake it needs admission, as a start does.
"""

from dataclasses import replace

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import Event
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action, HibernateContainer, UnpauseContainer, WakeContainer
from controller.kinds.planning.instance_state import Hibernation, InstanceState
from controller.kinds.planning.outcome import NOT_HIBERNATED
from controller.plan.base.backoff import is_backing_off
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext
from controller.plan.sandbox import drift, files, idle
from controller.policy.sandbox import Rendered

HIBERNATED, HIBERNATING, WAKING, UNAVAILABLE = "Hibernated", "Hibernating", "Waking", "HibernationUnavailable"
LOST_MESSAGE = (
    "its memory was lost while it was hibernated: its container ended, as in a restart of the host or the engine; the "
    "next use starts it"
)
_LOOK_AGAIN_SECONDS = 30.0
_TRIES = 3


def begun_hibernation(container: Container, now: float) -> Hibernation:
    """Return the record of a hibernation that begins now."""
    return Hibernation(container.run, at=now, phase="Moving")


def is_frozen(context: ReconcileContext) -> bool:
    """Return True if its container is paused, and its memory was moved to swap."""
    return _frozen_hibernation(context) is not None


def _frozen_hibernation(context: ReconcileContext) -> Hibernation | None:
    """Return the hibernation of a container that is frozen; None: it is not."""
    container, hibernation = context.container, context.state.memory.hibernation
    if container is None or hibernation is None or container.state is not State.PAUSED:
        return None
    is_moved = hibernation.run == container.run and hibernation.phase in ("Hibernated", "Ending", "Waking")
    return hibernation if is_moved else None


def is_lost(context: ReconcileContext) -> bool:
    """Return True if its container ended while it was hibernated, and nobody has asked for it since."""
    hibernation, spec = context.state.memory.hibernation, context.spec
    by_person = spec is not None and spec.run_state == "Hibernated"
    return by_person and hibernation is not None and hibernation.phase == "Lost"


def is_to_hibernate(context: ReconcileContext) -> bool:
    """Return True if a container that lives is to be hibernated, or to stay so."""
    container = context.container
    hibernation = context.state.memory.hibernation
    spec = context.spec
    if container is None or container.state not in (State.RUNNING, State.PAUSED) or spec is None:
        return False
    if context.stays_hibernated and is_frozen(context):
        return True
    if spec.run_state == "Hibernated":
        return True
    if hibernation is None or hibernation.run != container.run or not idle.is_asleep(context):
        return False
    if hibernation.phase == "Moving":
        return is_possible(context)
    if hibernation.phase == "Ending":  # it can't be suspended: its files in memory would be lost
        return files.blocked_stop(context) is not None
    return hibernation.phase == "Hibernated"


def hibernate(context: ReconcileContext, container: Container, rendered: Rendered) -> Decision:
    """Hibernate a sandbox that is to be, once nothing prevents it, and leave it so."""
    hibernation = _frozen_hibernation(context)
    if hibernation is not None:
        return _stay_hibernated(context, container, rendered, hibernation)
    state = context.state
    if container.state is State.RUNNING:
        if context.activity is not None and context.activity.open:
            return Decision(state, HIBERNATING, "waits until nobody uses it: a command or a connection is open")
        if not is_possible(context):
            # A warm member is kept running then, and is claimed as one.
            return Decision(state) if context.is_pool_member else _unable(context)
    # One that is paused already, out-of-band or by a try that got halfway, has its memory still to be moved.
    why = idle.stop_message(context) if idle.is_asleep(context) else "runState is Hibernated"
    action = HibernateContainer(uid=context.obj.uid, name=container.name, container_id=container.id, why=why)
    new_hibernation = begun_hibernation(container, context.now)
    return Decision(
        replace(state, memory=replace(state.memory, hibernation=new_hibernation)),
        HIBERNATING,
        why,
        (action,),
        hold=container.run,  # no use may begin while it is frozen
    )


def _stay_hibernated(
    context: ReconcileContext, container: Container, rendered: Rendered, hibernation: Hibernation
) -> Decision:
    """Leave a frozen container as it is, and say what waits for its wake."""
    changed = ", ".join(field for field, _, _ in drift.differences(rendered.config.limits, container))
    deferred = f"it is hibernated; {changed} change once it is awake" if changed else ""
    text, until = message(context, container), None
    # Ending: it was to be suspended, and can't be, as its files in memory would be lost.
    blocked = files.blocked_stop(context) if hibernation.phase == "Ending" else None
    if blocked is not None:
        failure = context.state.backoff.failure
        trouble = failure.message if failure is not None else ""
        text, until = f"{text}; it is not suspended: {trouble}", blocked.until
    return Decision(context.state, HIBERNATED, text, until=until, deferred=deferred)


def wake(context: ReconcileContext, container: Container) -> Decision:
    """Wake a hibernated container that is to run."""
    why = "asked for again" if context.activity is not None and context.activity.asking else "desired running"
    state = waking(context)
    return Decision(state, WAKING, why, (thaw(context, container, why),), release=container.run)


def waking(context: ReconcileContext) -> InstanceState:
    """Return the state in which its hibernated container, if there is one, wakes."""
    state = context.state
    hibernation = _frozen_hibernation(context)
    if hibernation is None:
        return state
    hibernation = replace(hibernation, phase="Waking", at=context.now)
    return replace(state, memory=replace(state.memory, hibernation=hibernation))


def thaw(context: ReconcileContext, container: Container, why: str) -> Action:
    """Return the action that lets the processes of a paused container run."""
    kind = UnpauseContainer if context.state.memory.hibernation is None else WakeContainer
    return kind(uid=context.obj.uid, name=container.name, container_id=container.id, why=why)


def message(context: ReconcileContext, container: Container) -> str:
    """Return its state in words: where its memory is, and what wakes it."""
    memory = container.frozen_memory
    where = "frozen"
    if memory is not None:
        where = f"frozen, {format_bytes(memory.swapped_bytes)} in swap, {format_bytes(memory.resident_bytes)} in memory"
    for_idleness = f"{idle.stop_message(context)}: " if idle.is_asleep(context) else ""
    return f"{for_idleness}{where}; the next use wakes it"


def observe(context: ReconcileContext, state: InstanceState) -> InstanceState:
    """Return the state with the hibernation as it is observed: over once it runs, or with its container."""
    hibernation, container = state.memory.hibernation, context.container
    if hibernation is None:
        return state
    if hibernation.phase == "Lost":
        runs_anew = container is not None and container.state in ALIVE
        return replace(state, memory=replace(state.memory, hibernation=None)) if runs_anew else state
    if container is None or container.state not in ALIVE or hibernation.run != container.run:
        lost = hibernation.phase == "Hibernated" and (container is None or container.state not in ALIVE)
        return replace(
            state, memory=replace(state.memory, hibernation=replace(hibernation, phase="Lost") if lost else None)
        )
    if container.state is not State.RUNNING:
        return state
    if hibernation.phase in ("Waking", "Ending"):
        return replace(state, memory=replace(state.memory, hibernation=None))
    if hibernation.phase == "Hibernated":  # unpaused out-of-band
        return replace(state, memory=replace(state.memory, hibernation=replace(hibernation, phase="Moving")))
    return state


def loss_event(context: ReconcileContext, after: InstanceState) -> Event | None:
    """Return the event of a container that ended while it was hibernated. `context` is that of before."""
    before = context.state.memory.hibernation
    if (
        before is None
        or before.phase == "Lost"
        or after.memory.hibernation is None
        or after.memory.hibernation.phase != "Lost"
    ):
        return None
    return context.event("HibernationLost", LOST_MESSAGE, warning=True)


def is_possible(context: ReconcileContext) -> bool:
    """Return True if its host can hibernate it, as far as is known."""
    failure = context.state.backoff.failure
    failed = failure is not None and failure.reason == NOT_HIBERNATED and failure.count >= _TRIES
    return context.hibernation.available and not (
        failed and is_backing_off(failure, context.obj.generation, context.deleting)
    )


def _unable(context: ReconcileContext) -> Decision:
    reason = f"it runs on: {context.hibernation.message}"
    return Decision(context.state, UNAVAILABLE, reason, until=context.now + _LOOK_AGAIN_SECONDS)
