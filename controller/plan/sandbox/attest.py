"""Attestation: comparison of a running sandbox's inside with its rendered configuration.

One that differs is stopped at once, and is not started again with the same configuration.
"""

from dataclasses import dataclass, replace

from controller.kinds.meta import Condition, ConditionStatus
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action, SignalContainer, UnpauseContainer
from controller.kinds.planning.instance_state import FailedAttestation
from controller.kinds.runtime.container import ContainerConfig
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext
from controller.plan.network import networks
from controller.plan.sandbox import drift
from controller.plan.sandbox.lifecycle import asked_to_stop, rest_state
from controller.policy.attest.attest import Fact, differing, facts, hides_processes
from controller.policy.attest.mounted import unjudged
from controller.policy.sandbox import Rendered

REASON, UNRECORDED, MOUNTS_GONE = "NotSecured", "MountsUnrecorded", "MountsGone"
_RESTARTS = 3  # what that many do not mend is not secured
_UNRECORDED = (
    "mounted, and the record of what was bound there is lost; it runs on, and its next start binds all anew "
    "(`paddock restart`)"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of an attestation.

    `status`, `reason` and `message` are the condition's; `compared` are the facts compared.
    """

    status: ConditionStatus
    reason: str
    message: str = ""
    compared: tuple[Fact, ...] = ()


def decide(context: ReconcileContext) -> Decision | None:
    """Return the actions because a sandbox is not as rendered inside; None: nothing."""
    container, rendered = context.container, context.rendered
    if rendered is None:
        return None
    if container is not None and container.state in ALIVE:
        judgement = verdict(context)
        return _stop(context, container, rendered, judgement.message) if _stops(judgement, rendered) else None
    message = _hold_message(context, rendered)
    if not message or rest_state(context) is not None:
        return None
    return Decision(context.state, REASON, f"{message}; it waits for a change of its spec")


def restart_reason(context: ReconcileContext) -> tuple[str, str]:
    """Return the reason and message why only a restart mends a running container; empty ones if none does."""
    if context.container is not None and context.container.cgroups_lost:
        return drift.CGROUPS_LOST, drift.LOST_MESSAGE
    judgement = verdict(context)
    needs_restart = (
        judgement.reason == MOUNTS_GONE and context.rendered is not None and not context.rendered.report_only
    )
    return (judgement.reason, judgement.message) if needs_restart else ("", "")


def condition(context: ReconcileContext) -> Condition:
    """Return the Secured condition."""
    judgement = verdict(context)
    return Condition("Secured", judgement.status, judgement.reason, judgement.message)


def verdict(context: ReconcileContext) -> Verdict:
    """Return the comparison of the newest reading of the inside with the rendered configuration."""
    container, rendered = context.container, context.rendered
    if context.blind:
        return Verdict("Unknown", "EngineUnreachable", context.blind)
    if rendered is None:
        return Verdict("Unknown", "Refused", "its spec is refused: there is nothing to compare with")
    if container is None or container.state not in ALIVE:
        message = _hold_message(context, rendered)
        return (
            Verdict("False", REASON, message)
            if message
            else Verdict("Unknown", "NotRunning", "attested at every start")
        )
    if container.cgroups_lost:
        return Verdict("Unknown", drift.CGROUPS_LOST, drift.LOST_MESSAGE)
    inside = container.inside
    if inside is None or inside.unread:
        return Verdict("Unknown", "NotAttested", inside.unread if inside else "not read yet")
    if hides_processes(runtime := rendered.config.runtime or container.runtime):
        message = f"the runtime {runtime} hides the sandbox's inside from the host"
        return Verdict("Unknown", "NotAttested", message)
    # A network attached out-of-band is detached in this same pass.
    attached = set(container.networks) == set(networks.names(context, rendered))
    bound, recorded = container.bound, not container.unrecorded
    compared = facts(_as_created(rendered.config, container), inside, networks=attached, bound=bound, recorded=recorded)
    message = differing(compared)
    if not message and context.unconfined:
        message = f"the guard of its network is lost: {context.unconfined}"
        return Verdict("False", networks.UNGUARDED, message, compared)
    paths = () if recorded else unjudged(rendered.config, inside, bound)
    if not message and paths:
        return Verdict("Unknown", UNRECORDED, f"{', '.join(paths)}: {_UNRECORDED}", compared)
    if not message:
        return Verdict("True", "Attested", "read back from inside as rendered", compared)
    if drift.is_outdated(container, rendered):
        return Verdict("False", "Outdated", f"{message} (as it was rendered then; its next start renews it)", compared)
    if context.state.runs.crashes < _RESTARTS and all(fact.holds or fact.is_missing for fact in compared):
        return Verdict("False", MOUNTS_GONE, f"{message}; a restart mounts it again", compared)
    return Verdict("False", REASON, message, compared)


def _as_created(config: ContainerConfig, container: Container) -> ContainerConfig:
    """Return the config with the id of its own that the container was created with, if its image fits any user."""
    own_user = f"{config.own_id}:{config.own_id}"
    return replace(config, user=own_user) if config.own_id and container.user == own_user else config


def _stops(judgement: Verdict, rendered: Rendered) -> bool:
    return judgement.status == "False" and judgement.reason == REASON and not rendered.report_only


def _hold_message(context: ReconcileContext, rendered: Rendered) -> str:
    """Return why it is not started again with its present configuration; "" if it may be."""
    failed = context.state.security.failed_attestation
    is_current = (failed.generation, failed.config_hash) == (context.obj.generation, rendered.config_hash)
    return failed.differences if is_current else ""


def _stop(context: ReconcileContext, container: Container, rendered: Rendered, message: str) -> Decision:
    """Kill it: an insecure sandbox gets no grace period."""
    uid, why = context.obj.uid, f"not secured: {message}"
    actions: list[Action] = []
    if container.state is State.PAUSED:
        actions.append(UnpauseContainer(uid=uid, name=container.name, container_id=container.id, why=why))
    actions.append(SignalContainer(uid=uid, name=container.name, container_id=container.id, signal="KILL", why=why))
    failed = FailedAttestation(context.obj.generation, rendered.config_hash, message)
    memory = asked_to_stop(
        replace(context.state, security=replace(context.state.security, failed_attestation=failed)),
        container,
        context.now,
        "Killed",
    )
    event = context.event(REASON, message, warning=True)
    return Decision(memory, REASON, message, tuple(actions), events=(event,), drift=("security",))
