"""The guarded bridge of a sandbox with the Internet: made before its container, kept with it, taken away after it.

Called by peers.py with what was decided for the sandbox itself. Without the guard nothing is started on it: the
guard is the wall here, and the only one.
"""

from dataclasses import replace

from controller.kinds.common.labels import container_labels
from controller.kinds.meta import Condition
from controller.kinds.planning.action import Action, ConnectNetwork, CreateContainer, StartContainer
from controller.kinds.runtime.network import EnsureNetwork, Network, RemoveNetwork
from controller.plan.common.altered import altered
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network import egress
from controller.plan.sandbox.stopping import ALIVE
from controller.policy.network.bridge import Open

ROLE = "public"
_LOOK_SECONDS = 1.0


def attend(case: Case, decision: Decision) -> Decision:
    """The decision, with what has to be done about the bridge."""
    wanted, found = _wanted(case), case.around.bridges
    if wanted is None and not found:
        return _forgotten(case, decision)
    if case.blind or egress.is_held_up(decision) or decision.reason == "Unreadable":
        return decision
    if case.deleting or wanted is None:
        return decision if case.rendered is None and not case.deleting else _cleared(case, decision, found)
    decision = _cleared(case, decision, tuple(each for each in found if each.name != wanted.network))
    joins = [at for at, each in enumerate(decision.actions) if _joins(each, wanted)]
    if not joins:
        return decision
    first = decision.actions[joins[0]]
    if not isinstance(first, ConnectNetwork) and (lacking := egress.lacking(case)) is not None:
        return Decision(case.memory if isinstance(first, CreateContainer) else decision.memory, *lacking)
    if not case.around.subnet:
        return decision
    memory = altered(decision.memory, subnet=case.around.subnet)
    if not _differs(case, wanted):
        return replace(decision, memory=memory)
    before, after = decision.actions[: joins[0]], decision.actions[joins[0] :]
    return replace(decision, memory=memory, actions=(*before, _ensure(case, wanted), *after))


def unplugged(case: Case) -> bool:
    """Whether a stopped container can't be started because its network is not the one that it was made on."""
    wanted = _wanted(case)
    return egress.unplugged(case) if wanted is None else _differs(case, wanted)


def ready(case: Case) -> Condition | None:
    """Whether its network is as it has to be; None: it has no bridge of this kind."""
    wanted = _wanted(case)
    if wanted is None:
        return None
    if case.blind:
        return Condition("NetworkReady", "Unknown", "EngineUnreachable", case.blind)
    lacking, box = egress.lacking(case), case.container
    up = box is not None and box.state in ALIVE and box.networks == (wanted.network,)
    if up and case.unconfined:
        return Condition("NetworkReady", "False", egress.UNGUARDED, case.unconfined)
    if up and case.around.unguarded:
        words = f"it runs on, though it is not known that the guard is in force: {case.around.unguarded}"
        return Condition("NetworkReady", "Unknown", egress.UNGUARDED, words)
    if up:
        words = "the Internet and the local network" if wanted.local else "the Internet, and nothing local"
        return Condition("NetworkReady", "True", "Local" if wanted.local else "Public", f"reaches {words}")
    if box is not None and box.state in ALIVE:
        return Condition("NetworkReady", "False", "NotUp", f"it is not on {wanted.network} alone")
    if lacking is not None:
        return Condition("NetworkReady", "False", *lacking)
    return Condition("NetworkReady", "False", "NotRunning", "the sandbox does not run")


def _wanted(case: Case) -> Open | None:
    return case.rendered.open if case.rendered else None


def _joins(action: Action, wanted: Open) -> bool:
    """Whether something is put on the bridge by it."""
    if isinstance(action, ConnectNetwork):
        return action.network == wanted.network
    return isinstance(action, CreateContainer | StartContainer)


def _differs(case: Case, wanted: Open) -> bool:
    found = next((each for each in case.around.bridges if each.name == wanted.network), None)
    return found is None or found.config_hash != wanted.bridge(case.around.subnet).hash()


def _ensure(case: Case, wanted: Open) -> EnsureNetwork:
    config = wanted.bridge(case.around.subnet)
    labels = container_labels(
        instance=case.instance_id,
        uid=case.obj.uid,
        namespace=case.obj.namespace,
        name=case.obj.name,
        role=ROLE,
        generation=case.obj.generation,
        config_hash=config.hash(),
        template_hash="",
    )
    there = any(each.name == wanted.network for each in case.around.bridges)
    why = "its bridge was to be another one" if there else "found no bridge of its own"
    return EnsureNetwork(case.obj.uid, config, labels, why)


def _forgotten(case: Case, decision: Decision) -> Decision:
    """A subnet that is remembered for a bridge that there is not, and that nothing wants any more, is given back."""
    if not decision.memory.subnet or case.rendered is None or case.blind:
        return decision
    return replace(decision, memory=replace(decision.memory, subnet=""))


def _cleared(case: Case, decision: Decision, gone: tuple[Network, ...]) -> Decision:
    """Take these away, once the sandbox's own container is off them."""
    box = case.container
    free = [each for each in gone if box is None or (each.name not in box.networks and not case.deleting)]
    if not free or any(isinstance(each, CreateContainer | ConnectNetwork) for each in decision.actions):
        return decision
    why = "deleted" if case.deleting else "its level has no such network"
    actions = [RemoveNetwork(case.obj.uid, each.name, why) for each in free]
    memory = decision.memory if _wanted(case) and not case.deleting else replace(decision.memory, subnet="")
    look = case.now + _LOOK_SECONDS
    until = look if decision.until is None else min(decision.until, look)
    told = replace(decision, memory=memory, actions=(*decision.actions, *actions), until=until, finalize=False)
    return replace(told, reason="Terminating", message="removing its network") if case.deleting else told
