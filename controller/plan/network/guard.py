"""The guard lost while a sandbox runs: what only the guard confines is frozen, stopped, or reported (`guard_lost`).

That is a sandbox on a bridge that leads to the Internet. One on a sealed network is confined by the network itself: it
is internal, and this host has no address on it; the egress container, its one way out, refuses local addresses by
itself. So those run on, and only nothing new is started on them. Called by plan/sandbox/sandbox.py.
"""

from controller.kinds.meta import Condition, Event
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action, PauseContainer, SignalContainer, UnpauseContainer
from controller.kinds.planning.instance_record import Memory
from controller.plan.common.altered import altered
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network import egress
from controller.plan.sandbox.rest import rest
from controller.plan.sandbox.stopping import ALIVE, asked_to_stop

LOST, BACK = "GuardLost", "GuardBack"
_DONE = {
    "pause": "its processes are frozen until the guard is in force again",
    "stop": "it is stopped, and started once the guard is in force again",
    "report": "it runs on, and nothing confines its network (setting `guard_lost`)",
}


def notice(case: Case) -> Memory:
    """The memory of the case, with whether it is without its guard now."""
    return altered(case.memory, unguarded=bool(case.unconfined))


def told(case: Case) -> Event | None:
    """The event of a guard that was lost, or is back, since `case.memory` was kept."""
    if case.unconfined and not case.memory.unguarded:
        return case.event(LOST, words(case), warning=True)
    alive = case.container is not None and case.container.state in ALIVE
    if case.memory.unguarded and not case.unconfined and alive:
        return case.event(BACK, "the guard of its network is in force again")
    return None


def decide(case: Case, *, before: Memory) -> Decision | None:
    """What has to be done because its guard was lost, or is back; None: nothing. `before` is the memory as kept."""
    container = case.container
    if container is None:
        return None
    if not case.unconfined:
        return _back(case, container) if before.unguarded else None
    if case.around.on_guard_lost == "report" or (case.rendered is not None and rest(case) is not None):
        return None
    failed = case.memory.failure is not None and case.memory.failure.count > 0
    if case.around.on_guard_lost == "stop" or (before.unguarded and failed):  # what can't be frozen is stopped
        return _killed(case, container)
    if container.state is not State.RUNNING:
        return Decision(case.memory, egress.UNGUARDED, words(case))
    pause = PauseContainer(case.obj.uid, container.name, container.id, "the guard of its network is lost")
    return Decision(case.memory, egress.UNGUARDED, words(case), (pause,))


def unready(case: Case) -> Condition | None:
    """The Ready condition of a sandbox without its guard; None: it has it, or needs none."""
    return Condition("Ready", "False", egress.UNGUARDED, words(case)) if case.unconfined else None


def words(case: Case) -> str:
    """What has happened, and what becomes of it."""
    return f"{_DONE[case.around.on_guard_lost]}: {case.unconfined}"


def _back(case: Case, container: Container) -> Decision | None:
    """Let it go on, if it was frozen and is meant to run."""
    if container.state is not State.PAUSED or (case.spec is not None and case.spec.run_state != "Running"):
        return None
    why = "the guard of its network is in force again"
    unpause = UnpauseContainer(case.obj.uid, container.name, container.id, why)
    return Decision(case.memory, "Unpausing", why, (unpause,))


def _killed(case: Case, container: Container) -> Decision:
    """Kill it: a grace period would be time without a guard."""
    uid, why = case.obj.uid, "the guard of its network is lost"
    actions: list[Action] = []
    if container.state is State.PAUSED:
        actions.append(UnpauseContainer(uid, container.name, container.id, why))
    actions.append(SignalContainer(uid, container.name, container.id, "KILL", why))
    memory = asked_to_stop(case.memory, container, case.now)
    return Decision(memory, egress.UNGUARDED, f"{_DONE['stop']}: {case.unconfined}", tuple(actions))
