"""The egress proxy of a sealed network: created before the sandbox starts, kept while it runs, removed after it.

Called by networks.py with the decision for the sandbox itself; missing parts are created before its own actions. All of
it follows from observation: the network, and one egress container that matches its config. An egress container that
differs in anything is replaced; so a new list of hosts cuts the connections of the old one. Nothing here opens
anything: a sealed network without its egress container reaches nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from controller.kinds.common.labels import container_labels, egress_name, egress_uid, sealed_name
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import (
    Action,
    ConnectNetwork,
    CreateContainer,
    RemoveContainer,
    SignalContainer,
    StartContainer,
)
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import InstanceState, NetworkRecord
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import BindMounts
from controller.kinds.runtime.network import (
    RESTART,
    RULES_LOST,
    EnsureNetwork,
    Network,
    NetworkConfig,
    RemoveNetwork,
)
from controller.kinds.runtime.secret import SECRET_MISSING
from controller.plan.base.backoff import waits
from controller.plan.base.claim import Share
from controller.plan.base.limits import limit_differences
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext
from controller.plan.base.renames import rename_action
from controller.policy.network import egress as policy
from controller.policy.network.egress import Sealed
from controller.policy.sandbox import NO_LIMITS

ROLE = "egress"
UNGUARDED, NO_SUBNET, NETWORK_GONE = "NetworkUnguarded", "NoSubnetLeft", "NetworkGone"
UNRESOLVED = "NamesUnresolved"
_RESUME = "`paddock set run-state sandbox/%s Suspended`, then `Running`"
_CRASHED_SECONDS = 10.0  # one that ended sooner is started again only after such a pause
_RETRY_SECONDS = 1.0
_ENDED = (State.CREATED, State.EXITED, State.DEAD)


def share(context: ReconcileContext, is_to_run: bool) -> Share:
    """Return the egress container's resources. `is_to_run`: its sandbox is. A blind pass changes nothing."""
    reserved = context.network.record.reserves if context.network.record else NO_LIMITS
    if context.blind:
        return Share(reserved, reserved)
    # A container reserves while it lives, also one that is no longer needed and not stopped yet.
    is_in_use = any(container.state not in _ENDED for container in context.network.containers)
    needed = _sealed_network(context) is not None and is_to_run
    return Share(
        policy.LIMITS if is_in_use or (needed and reserved.pids) else NO_LIMITS,
        policy.LIMITS if is_in_use or needed else NO_LIMITS,
    )


def reconcile_egress(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with the actions on the sealed network and the egress container."""
    sealed_network, network = _sealed_network(context), context.network
    if sealed_network is None and network.record is None and not network.containers and network.sealed is None:
        return decision
    if context.blind or waits_for_retry(decision) or decision.reason == "Unreadable":
        return decision
    # Neither gone nor fine: a second proxy beside it would clash with it, and its network can't be removed.
    if any(container.state is State.UNKNOWN for container in network.containers):
        message = "the engine lists its egress container but does not report its state"
        return decision if decision.actions else replace(decision, reason="Unreadable", message=message, finalize=False)
    # Without a rendered spec nobody knows if it is to be sealed: its network stays until that is known.
    if context.deleting or (sealed_network is None and context.rendered is not None):
        return _remove_network(context, decision)
    if sealed_network is None:
        return decision
    is_start = any(isinstance(action, CreateContainer | StartContainer) for action in decision.actions)
    if is_start and (reason := start_obstacle(context)) is not None:
        # Nothing is created now, so a state that says so is not kept.
        is_creation = any(isinstance(action, CreateContainer) for action in decision.actions)
        return Decision(context.state if is_creation else decision.state, *reason)
    is_alive = context.container is not None and context.container.state in ALIVE
    if not is_start and not is_alive:
        return _without_proxy(context, decision)
    return _keep_proxy(context, decision, sealed_network)


def has_other_network(context: ReconcileContext) -> bool:
    """Return True if a stopped container cannot start because its network is not the one that it was created on."""
    sealed_network = _sealed_network(context)
    return sealed_network is not None and _network_differs(context, sealed_network)


def record(
    context: ReconcileContext, decision: Decision, instance: Instance | None, reserves: Limits
) -> tuple[Instance | None, bool]:
    """Return the egress container's desired record (None: there is none), and True if the stored one is to be removed.

    The record of an object that is removed goes with it.
    """
    network, stored = context.network, context.network.record
    if not network.subnet and stored is None:
        return None, False
    is_needed = _sealed_network(context) is not None or bool(network.containers) or network.sealed is not None
    if decision.finalize or not is_needed:
        return None, stored is not None
    if stored is None and not decision.actions:
        return None, False
    parent = instance.parent_uid if instance else context.obj.uid
    kind, name = (instance.parent_kind, instance.parent_name) if instance else (context.obj.kind, context.obj.name)
    new_record = Instance(
        name=egress_name(context.obj.uid),
        parent_uid=parent,
        parent_kind=kind,
        namespace=context.obj.namespace,
        parent_name=name,
        role=ROLE,
        reserves=reserves,
        created_at=context.now,
        state=InstanceState(network=NetworkRecord(subnet=network.subnet)),
        member_uid=egress_uid(context.obj.uid),
        host=context.host,
    )
    if stored is None:
        return new_record, False
    subnet = network.subnet if _sealed_network(context) is not None else ""
    # Its subnet stays recorded while it goes, so that no other network gets it before.
    state = replace(stored.state, network=replace(stored.state.network, subnet=subnet or stored.state.network.subnet))
    return replace(new_record, created_at=stored.created_at, version=stored.version, state=state), False


def network_ready(context: ReconcileContext) -> Condition:
    """Return the NetworkReady condition."""
    sealed_network = _sealed_network(context)
    if context.rendered is None:
        return Condition("NetworkReady", "Unknown", "Refused", "what network it is to have is not known")
    if sealed_network is None:
        return Condition("NetworkReady", "True", "NoNetwork", "its level has none")
    if context.blind:
        return Condition("NetworkReady", "Unknown", "EngineUnreachable", context.blind)
    if (missing := missing_condition(context)) is not None:
        return missing
    if not _proxy_fault(context, sealed_network):
        if (cut := cut_off_condition(context.network.uplink)) is not None:
            return cut
        hosts = ", ".join(sealed_network.hosts) or "none"
        credential_hosts = ", ".join(dict.fromkeys(credential.host for credential in sealed_network.credentials))
        suffix = f"; with credentials: {credential_hosts}" if credential_hosts else ""
        message = f"reaches by its proxy alone: {hosts}{suffix}"
        if context.network.unresolved:
            failed = ", ".join(context.network.unresolved)
            message = f"{message}; no address for {failed} when last asked: DNS failed, nothing was refused"
            return Condition("NetworkReady", "True", UNRESOLVED, message)
        return Condition("NetworkReady", "True", "Sealed", message)
    if (reason := start_obstacle(context)) is not None:
        return Condition("NetworkReady", "False", *reason)
    failure = context.state.backoff.failure
    if failure is not None and failure.reason == SECRET_MISSING:
        return Condition("NetworkReady", "False", failure.reason, failure.message)
    if context.container is None or context.container.state not in ALIVE:
        return Condition("NetworkReady", "False", "NotRunning", "the sandbox does not run")
    return Condition("NetworkReady", "False", "NotUp", "its egress container does not run; it reaches nothing")


def missing_condition(context: ReconcileContext) -> Condition | None:
    """Return the NetworkReady condition of a running sandbox whose own network is gone; None: it is there."""
    container, rendered = context.container, context.rendered
    if (
        container is None
        or container.state not in ALIVE
        or rendered is None
        or (rendered.open is None and rendered.sealed is None)
    ):
        return None
    name = rendered.config.network_mode
    networks = (context.network.sealed, *context.network.bridges)
    network = next((candidate for candidate in networks if candidate is not None and candidate.name == name), None)
    if name not in container.networks or (network is not None and network.is_linked):
        return None
    cause = "the engine has it no more" if network is None else "its bridge was removed from this host"
    message = f"its network {name} is gone ({cause}); its next start makes it again: {_RESUME % context.obj.name}"
    return Condition("NetworkReady", "False", NETWORK_GONE, message)


def cut_off_condition(network: Network | None) -> Condition | None:
    """Return the NetworkReady condition if that bridge does not lead to the Internet; None: it does."""
    if network is None or not network.is_linked:
        name = network.name if network is not None else policy.UPLINK
        return Condition("NetworkReady", "False", NETWORK_GONE, f"it reaches nothing: the bridge {name} is gone")
    if network.leads_out is None:
        rules = f"the engine's firewall rules for {network.name}"
        message = f"{rules} can't be read; run the daemon as root, beside iptables or nft"
        return Condition("NetworkReady", "Unknown", "EngineRulesUnread", message)
    if not network.leads_out:
        message = f"it reaches nothing outside: the engine's firewall rules for {network.name} are gone; {RESTART}"
        return Condition("NetworkReady", "False", RULES_LOST, message)
    return None


def _sealed_network(context: ReconcileContext) -> Sealed | None:
    return context.rendered.sealed if context.rendered else None


def waits_for_retry(decision: Decision) -> bool:
    """Return True if a call of this object failed and its back-off is not over."""
    failure = decision.state.backoff.failure
    return failure is not None and not decision.actions and decision.reason == failure.reason


def start_obstacle(context: ReconcileContext) -> tuple[str, str] | None:
    """Return the reason and message why nothing may be started on its network; None: it may."""
    if context.network.unguarded or context.network.untried:
        return UNGUARDED, f"not started: {context.network.unguarded or context.network.untried}"
    if not context.network.subnet:
        return NO_SUBNET, f"every /28 of {context.network.range} is in use; set a larger PADDOCK_NETWORK_RANGE"
    return None


def _network_differs(context: ReconcileContext, sealed_network: Sealed) -> bool:
    """Return True if the sealed network is missing, or not as its spec has it."""
    network = context.network.sealed
    return (
        network is None
        or not network.is_linked
        or network.config_hash != sealed_network.bridge(context.network.subnet).hash()
    )


def _proxy_fault(context: ReconcileContext, sealed_network: Sealed) -> str:
    """Return what is wrong with the egress container, "" if nothing is."""
    containers = context.network.containers
    if len(containers) != 1:
        return "no egress container yet" if not containers else "more than one egress container"
    container = containers[0]
    if container.state is not State.RUNNING:
        return f"its egress container is {container.state}"
    # The image is part of the hash: only one of both is the reason for people.
    if container.config_hash != sealed_network.egress.hash():
        return "allowedHosts changed" if container.image == sealed_network.egress.image else "another egress image"
    if context.network.uplink is None or not context.network.uplink.is_linked:
        return f"the bridge {policy.UPLINK} is gone"
    if set(container.networks) != {policy.UPLINK, sealed_network.network}:
        return f"its egress container was found on {', '.join(container.networks) or 'no network'}"
    if container.unrecorded:
        return "the record of its files is lost: nobody can tell if its secrets are current"
    if any(binding.outdated for binding in container.bound):
        return "a secret of its credentials was changed or deleted"
    if container.cgroups_lost:
        return "its egress container is out of its cgroup"
    if container.limits is not None and list(limit_differences(policy.LIMITS, container.limits)):
        return "the limits of its egress container were changed"
    return ""


def _is_misnamed(container: Container, sealed_network: Sealed) -> bool:
    return container.name != sealed_network.egress.name


def _keep_proxy(context: ReconcileContext, decision: Decision, sealed_network: Sealed) -> Decision:
    """Return the decision with missing parts of the egress path before the sandbox's own actions."""
    until = _rest_until(context)
    why = _proxy_fault(context, sealed_network)
    network = context.network
    actions = [_with_proxy_address(action, context) for action in decision.actions]
    # Removals come first: a network is recreated only with nothing attached to it.
    removal_end = max((at for at, action in enumerate(actions, 1) if isinstance(action, RemoveContainer)), default=0)
    removals, own_actions = actions[:removal_end], actions[removal_end:]
    proxy_actions: list[Action] = []
    if _network_differs(context, sealed_network) and not _runs_on_network(context, sealed_network):
        why = why or "its network is recreated"
        proxy_actions.append(_ensure(context, sealed_network.bridge(network.subnet), context.obj.uid, "sealed"))
    if why and until is None:
        proxy_actions = [
            *_removals(network.containers, why),
            *proxy_actions,
            *_new_egress(context, sealed_network, why),
        ]
    if not why:
        proxy_actions += [
            rename_action(context, container, sealed_network.egress.name)
            for container in network.containers
            if _is_misnamed(container, sealed_network)
        ]
    if not proxy_actions:
        return replace(decision, actions=(*removals, *own_actions), until=_earlier(decision.until, until))
    # The sandbox itself may need nothing, but failures are kept until these actions have worked.
    backoff = decision.state.backoff
    state = replace(decision.state, backoff=replace(backoff, failure=backoff.failure or context.state.backoff.failure))
    drifted = ("egress",) if network.containers and until is None else ()
    return replace(
        decision,
        state=state,
        actions=(*removals, *proxy_actions, *own_actions),
        until=_earlier(decision.until, until),
        drift=(*decision.drift, *drifted),
    )


def _earlier(first: float | None, second: float | None) -> float | None:
    return min((moment for moment in (first, second) if moment is not None), default=None)


def _runs_on_network(context: ReconcileContext, sealed_network: Sealed) -> bool:
    """Return True if its container is on the existing network: that one is kept until the next start."""
    container = context.container
    return (
        context.network.sealed is not None
        and container is not None
        and container.state in ALIVE
        and sealed_network.network in container.networks
    )


def _rest_until(context: ReconcileContext) -> float | None:
    """Return the time until which an egress container that ended at once, or is being removed, is left alone."""
    for container in context.network.containers:
        if container.state is State.REMOVING:
            return context.now + _RETRY_SECONDS
        crashed = container.finished_at - container.started_at < _CRASHED_SECONDS
        due = container.finished_at + _CRASHED_SECONDS
        if container.state is State.EXITED and crashed and waits(context.now, due, _CRASHED_SECONDS):
            return due
    return None


def _new_egress(context: ReconcileContext, sealed_network: Sealed, why: str) -> list[Action]:
    """Return the actions that start an egress container, on its uplink first: that is its default route."""
    uid = egress_uid(context.obj.uid)
    config = sealed_network.egress
    network = context.network
    actions: list[Action] = []
    if network.uplink is None or not network.uplink.is_linked:
        actions.append(_ensure(context, policy.uplink(network.range), "", "uplink"))
    if config.slots:
        bind = BindMounts(
            uid=uid,
            name=config.name,
            namespace=context.obj.namespace,
            image=config.image,
            user=config.user,
            slots=config.slots,
            mounts=config.mounts,
            why=why,
        )
        actions.append(bind)
    labels = _labels(context, uid, ROLE, config.hash())
    actions.append(CreateContainer(uid=uid, config=config, labels=labels, why=why))
    address = policy.proxy_address(network.subnet)
    actions.append(
        ConnectNetwork(uid, config.name, container_id="", network=sealed_network.network, why=why, address=address)
    )
    actions.append(StartContainer(uid=uid, name=config.name, why=why))
    return actions


def _ensure(context: ReconcileContext, config: NetworkConfig, uid: str, role: str) -> EnsureNetwork:
    """Return the action that makes a network; `uid` is empty for the uplink, which all sandboxes share."""
    why = "found no sealed network" if uid else "found no uplink for egress containers"
    if uid and context.network.sealed is not None:
        why = "its sealed network differs from the desired one"
    return EnsureNetwork(uid=uid, config=config, labels=_labels(context, uid, role, config.hash()), why=why)


def _labels(context: ReconcileContext, uid: str, role: str, config_hash: str) -> Mapping[str, str]:
    """Return the labels of a network or container; without a uid it belongs to no sandbox."""
    return container_labels(
        instance=context.instance_id,
        uid=uid,
        namespace=context.obj.namespace if uid else "",
        name=context.obj.name if uid else "",
        role=role,
        generation=context.obj.generation if uid else 0,
        config_hash=config_hash,
        template_hash="",
    )


def _with_proxy_address(action: Action, context: ReconcileContext) -> Action:
    """Return the action with the address of the proxy in a new container's variables: it follows from the subnet."""
    if isinstance(action, CreateContainer):
        return replace(action, config=policy.with_proxy_address(action.config, context.network.subnet))
    return action


def _without_proxy(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with the egress container removed: a stopped sandbox needs none. Its network stays."""
    why = "its sandbox does not run"
    return replace(decision, actions=(*decision.actions, *_removals(context.network.containers, why)))


def _removals(containers: tuple[Container, ...], why: str) -> list[Action]:
    """Return the removal actions. KILL comes first, so that the log is complete when it is read for the audit."""
    actions: list[Action] = []
    for container in containers:
        if container.state is State.RUNNING:
            actions.append(
                SignalContainer(
                    uid=container.uid, name=container.name, container_id=container.id, signal="KILL", why=why
                )
            )
        if container.state is not State.REMOVING:
            actions.append(RemoveContainer(uid=container.uid, name=container.name, container_id=container.id, why=why))
    return actions


def _remove_network(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with all of it removed, once the sandbox's own container is off its network."""
    network, container = context.network, context.container
    name = sealed_name(context.obj.uid)
    is_attached = container is not None and (name in container.networks or context.deleting)
    if is_attached or any(isinstance(action, CreateContainer) for action in decision.actions):
        return decision
    if not network.containers and network.sealed is None:
        return decision
    why = "deleted" if context.deleting else "its level has no network of its own"
    actions: list[Action] = _removals(network.containers, why)
    if network.sealed is not None:
        actions.append(RemoveNetwork(uid=context.obj.uid, name=name, why=why))
    wait = _earlier(decision.until, context.now + _RETRY_SECONDS)
    reason, message = (
        ("Terminating", "removing its network") if context.deleting else (decision.reason, decision.message)
    )
    return replace(
        decision,
        actions=(*decision.actions, *actions),
        until=wait,
        finalize=False,
        reason=reason,
        message=message,
    )
