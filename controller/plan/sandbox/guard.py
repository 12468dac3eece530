"""Loss of the network guard: a sandbox that only the guard confines is frozen, stopped, or reported (`guard_lost`).

That is a sandbox on a bridge that leads to the Internet. One on a sealed network is confined by the network itself: it
is internal, and this host has no address on it; the egress container, its only route out, refuses local addresses by
itself. So those run on, and only new starts on them wait. Called by plan/sandbox/sandbox.py.
"""

from controller.kinds.meta import Condition, Event
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action, PauseContainer, SignalContainer, UnpauseContainer
from controller.kinds.planning.instance_state import InstanceState
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext, replace_if_changed
from controller.plan.network import egress
from controller.plan.sandbox.lifecycle import asked_to_stop, rest_state

LOST, BACK = "GuardLost", "GuardBack"
_DONE = {
    "pause": "its processes are frozen until the guard is in force again",
    "stop": "it is stopped, and started once the guard is in force again",
    "report": "it runs on, and nothing confines its network (setting `guard_lost`)",
}


def observe(context: ReconcileContext) -> InstanceState:
    """Return the state, with the presence of its guard updated."""
    return replace_if_changed(
        context.state, security=replace_if_changed(context.state.security, is_unguarded=bool(context.unconfined))
    )


def change_event(context: ReconcileContext) -> Event | None:
    """Return the event of a guard that was lost, or is back, since `context.state` was stored."""
    if context.unconfined and not context.state.security.is_unguarded:
        return context.event(LOST, message(context), warning=True)
    alive = context.container is not None and context.container.state in ALIVE
    if context.state.security.is_unguarded and not context.unconfined and alive:
        return context.event(BACK, "the guard of its network is in force again")
    return None


def decide(context: ReconcileContext) -> Decision | None:
    """Return the actions because its guard was lost, or is back; None: nothing."""
    container = context.container
    if container is None:
        return None
    if not context.unconfined:
        return _back(context, container) if context.was_unguarded else None
    if context.network.on_guard_lost == "report" or (context.rendered is not None and rest_state(context) is not None):
        return None
    failed = context.state.backoff.failure is not None and context.state.backoff.failure.count > 0
    if context.network.on_guard_lost == "stop" or (context.was_unguarded and failed):  # what can't be frozen is stopped
        return _kill(context, container)
    if container.state is not State.RUNNING:
        return Decision(context.state, egress.UNGUARDED, message(context))
    pause = PauseContainer(
        uid=context.obj.uid, name=container.name, container_id=container.id, why="the guard of its network is lost"
    )
    return Decision(context.state, egress.UNGUARDED, message(context), (pause,))


def unready(context: ReconcileContext) -> Condition | None:
    """Return the Ready condition of a sandbox without its guard; None: it has it, or needs none."""
    return Condition("Ready", "False", egress.UNGUARDED, message(context)) if context.unconfined else None


def message(context: ReconcileContext) -> str:
    """Return the message: the loss, and its consequence."""
    return f"{_DONE[context.network.on_guard_lost]}: {context.unconfined}"


def _back(context: ReconcileContext, container: Container) -> Decision | None:
    """Unpause it, if it was frozen and is to run."""
    if container.state is not State.PAUSED or context.state.memory.hibernation is not None:
        return None
    if context.spec is not None and context.spec.run_state != "Running":
        return None
    why = "the guard of its network is in force again"
    unpause = UnpauseContainer(uid=context.obj.uid, name=container.name, container_id=container.id, why=why)
    return Decision(context.state, "Unpausing", why, (unpause,))


def _kill(context: ReconcileContext, container: Container) -> Decision:
    """Kill it: during a grace period nothing would confine it."""
    uid, why = context.obj.uid, "the guard of its network is lost"
    actions: list[Action] = []
    if container.state is State.PAUSED:
        actions.append(UnpauseContainer(uid=uid, name=container.name, container_id=container.id, why=why))
    actions.append(SignalContainer(uid=uid, name=container.name, container_id=container.id, signal="KILL", why=why))
    memory = asked_to_stop(context.state, container, context.now)
    return Decision(memory, egress.UNGUARDED, f"{_DONE['stop']}: {context.unconfined}", tuple(actions))
