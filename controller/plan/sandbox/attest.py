"""Attestation: is a box inside as it was rendered? What is not is stopped at once, and not started as it is again."""

from dataclasses import dataclass, replace

from controller.kinds.meta import Condition, ConditionStatus
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action, SignalContainer, UnpauseContainer
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network import egress, peers
from controller.plan.sandbox import drift
from controller.plan.sandbox.rest import rest
from controller.plan.sandbox.stopping import ALIVE, asked_to_stop
from controller.policy.attest.attest import Fact, differing, facts, hides
from controller.policy.sandbox import Rendered

REASON = "NotSecured"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`status`, `reason` and `message` are the condition's; `compared` is what it was found by."""

    status: ConditionStatus
    reason: str
    message: str = ""
    compared: tuple[Fact, ...] = ()


def decide(case: Case) -> Decision | None:
    """What has to be done because a box is not as it should be inside; None: nothing."""
    container, rendered = case.container, case.rendered
    if rendered is None:
        return None
    if container is not None and container.state in ALIVE:
        found = verdict(case)
        return _stop(case, container, rendered, found.message) if _stops(found, rendered) else None
    words = _held(case, rendered)
    if not words or rest(case) is not None:
        return None
    return Decision(case.memory, REASON, f"{words}; it waits for a change of its spec")


def condition(case: Case) -> Condition:
    """The Secured condition."""
    found = verdict(case)
    return Condition("Secured", found.status, found.reason, found.message)


def verdict(case: Case) -> Verdict:
    """How the newest reading of the inside compares with what was rendered."""
    container, rendered = case.container, case.rendered
    if case.blind:
        return Verdict("Unknown", "EngineUnreachable", case.blind)
    if rendered is None:
        return Verdict("Unknown", "Refused", "its spec is refused: there is nothing to compare with")
    if container is None or container.state not in ALIVE:
        words = _held(case, rendered)
        return Verdict("False", REASON, words) if words else Verdict("Unknown", "NotRunning", "attested at every start")
    inside = container.inside
    if inside is None or inside.unread:
        return Verdict("Unknown", "NotAttested", inside.unread if inside else "not read yet")
    if hides(rendered.config.runtime):
        words = f"the runtime {rendered.config.runtime} hides the box's inside from the host"
        return Verdict("Unknown", "NotAttested", words)
    # A network attached by hand is taken off in this same turn.
    attached = set(container.networks) == set(peers.networks(case, rendered))
    compared = facts(rendered.config, inside, networks=attached, bound=container.bound)
    words = differing(compared)
    if not words and case.unconfined:
        words = f"the guard of its network is lost: {case.unconfined}"
        return Verdict("False", egress.UNGUARDED, words, compared)
    if not words:
        return Verdict("True", "Attested", "read back from inside as rendered", compared)
    if drift.outdated(container, rendered):
        return Verdict("False", "Outdated", f"{words} (as it was rendered then; its next start renews it)", compared)
    return Verdict("False", REASON, words, compared)


def _stops(found: Verdict, rendered: Rendered) -> bool:
    return found.status == "False" and found.reason == REASON and not rendered.report_only


def _held(case: Case, rendered: Rendered) -> str:
    """Why it is not started again as it is rendered now; "" when it may be."""
    generation, config_hash, words = case.memory.insecure
    return words if (generation, config_hash) == (case.obj.generation, rendered.config_hash) else ""


def _stop(case: Case, container: Container, rendered: Rendered, words: str) -> Decision:
    """Kill it: whoever is in there is not asked to be so kind as to end."""
    uid, why = case.obj.uid, f"not secured: {words}"
    actions: list[Action] = []
    if container.state is State.PAUSED:
        actions.append(UnpauseContainer(uid, container.name, container.id, why))
    actions.append(SignalContainer(uid, container.name, container.id, "KILL", why))
    insecure = (case.obj.generation, rendered.config_hash, words)
    memory = asked_to_stop(replace(case.memory, insecure=insecure), container, case.now, "Killed")
    event = case.event(REASON, words, warning=True)
    return Decision(memory, REASON, words, tuple(actions), events=(event,), drift=("security",))
