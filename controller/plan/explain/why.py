"""Explanation of one object: the planner's current decision for it, with all inputs, as text.

Nothing is kept for it: it is computed from the loop's last snapshot, for one object, on request.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.snapshot import PassProgress, Snapshot
from controller.kinds.runtime.container import Limits
from controller.plan.base.backoff import HEALTHY_SECONDS
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.deciders import decide
from controller.plan.host import plan
from controller.plan.network import networks
from controller.plan.sandbox import agent, drift, models, mounts, user_ids
from controller.plan.sandbox.deaths import ENDED, is_unproven
from controller.plan.sandbox.object_context import context_of
from controller.policy.levels.levels import Policy

Facts = tuple[tuple[str, str], ...]
_LAST_LINES = 3  # of the log of a run that failed
VERDICTS = ("AsAsked", "Acting", "Waiting", "Refused", "Unknown", "NotSeenYet")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Desired, observed and recorded facts of one object (names and texts), and the decision that follows.

    `verdict` is one of VERDICTS. `actions` are the engine calls that are due; `under_way`: workers carry out calls for
    it now. `until` is the latest time of the next decision if nothing happens (Unix seconds).
    """

    verdict: str
    reason: str
    message: str
    desired: Facts = ()
    observed: Facts = ()
    remembered: Facts = ()
    actions: tuple[Action, ...] = ()
    under_way: bool = False
    until: float | None = None


def explain(snapshot: Snapshot, uid: str, policy: Policy) -> Explanation:
    """Return the explanation for one object. One that the loop has not seen yet gets NotSeenYet."""
    sandbox = snapshot.desired.sandboxes.get(uid)
    if sandbox is None or snapshot.observed.revision == 0:
        return Explanation("NotSeenYet", "NotSeenYet", "the loop has not observed it yet; retry in a moment")
    context = context_of(snapshot, sandbox, policy)
    decision = _with_its_past(context, _within_the_host(snapshot, context, decide(context), policy))
    instance = snapshot.instances.get(uid)
    return Explanation(
        verdict=_verdict(context, decision),
        reason=decision.reason or ("Acting" if decision.actions else "AsAsked"),
        message=decision.message or _without_words(decision),
        desired=tuple(_desired_facts(context)),
        observed=tuple(_observed_facts(context)),
        remembered=(*_remembered_facts(decision.state, context.now), *_recorded_facts(instance)),
        actions=decision.actions,
        under_way=uid in snapshot.progress.in_flight,
        until=decision.until,
    )


def _within_the_host(snapshot: Snapshot, context: ReconcileContext, alone: Decision, policy: Policy) -> Decision:
    """Return the decision within the host's whole plan: quotas and pools may make it wait."""
    uid = context.obj.uid
    world = replace(snapshot, progress=PassProgress(in_flight=snapshot.progress.in_flight - {uid}))
    host_plan = plan(world, policy, policy.version())
    actions = next((group.actions for group in host_plan.groups if group.ref.uid == uid), ())
    deferral = next((waiting for waiting in host_plan.deferrals if waiting.ref.uid == uid), None)
    if deferral is None:
        return replace(alone, actions=actions)
    return replace(alone, actions=actions, reason=deferral.reason, message=deferral.message, until=deferral.until)


def _with_its_past(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision; one that needs nothing waits until the last failure of its run is forgotten."""
    container, end = context.container, decision.state.runs.last_end
    if decision.reason or decision.actions or not is_unproven(container, decision.state, context.now):
        return decision
    assert container is not None
    assert end is not None
    count = decision.state.runs.crashes
    ends = f"its run before ended {_ago(context.now, end.finished_at)} with exit code {end.exit_code}"
    limit = f" at {format_bytes(end.limits.memory_bytes)}" if end.reason == "OOMKilled" and end.limits else ""
    repetition = f", {count} ends in a row" if count > 1 else ""
    forgotten = container.started_at + HEALTHY_SECONDS
    logs = f"`paddock logs -p {context.obj.name}` has its last lines"
    message = f"it runs again for {context.now - container.started_at:.0f} s: {ends}{limit}{repetition}; {logs}"
    return replace(decision, reason=end.reason, message=message, until=forgotten)


def _recorded_facts(instance: Instance | None) -> Iterator[tuple[str, str]]:
    """Yield what the store holds for it."""
    if instance is None:
        return
    if instance.state.claim.launch:
        reason = instance.state.claim.launch_reason
        yield "launch", f"{instance.state.claim.launch}: {reason}" if reason else instance.state.claim.launch
    if instance.state.claim.pool:
        yield "pool", "counts among the sandboxes of a pool"
    if instance.reserves.memory_bytes:
        yield "reserved", _limits(instance.reserves)


def _verdict(context: ReconcileContext, decision: Decision) -> str:
    """Return one word on a decision: AsAsked, Acting, Waiting, Refused or Unknown."""
    if context.blind or decision.reason == "Unreadable":
        return "Unknown"
    if decision.actions or decision.finalize:
        return "Acting"
    if decision.reason == "Refused" or (decision.state.backoff.failure and decision.state.backoff.failure.terminal):
        return "Refused"
    # With a time of the next look it waits for something, even in a state that is as asked.
    rests = decision.finished or decision.reason in ("", "Suspended", "Paused", "Hibernated")
    return "AsAsked" if rests and decision.until is None else "Waiting"


def _without_words(decision: Decision) -> str:
    return "; ".join(dict.fromkeys(action.why for action in decision.actions)) or "it is as its spec asks"


def _desired_facts(context: ReconcileContext) -> Iterator[tuple[str, str]]:
    """Yield what the spec asks for, and how it is rendered."""
    if context.deleting:
        yield "deletion", "asked for"
    if context.spec is not None:
        yield "runState", context.spec.run_state
        yield "restartPolicy", context.spec.restart_policy
        yield "onSuspend", context.spec.lifecycle.on_suspend
    for refusal in context.refusals:
        yield f"refused {refusal.field}", refusal.message
    if context.rendered is not None:
        config = context.rendered.config
        yield "container", config.name
        yield "image", config.image
        yield "limits", _limits(config.limits)
        yield "network", ", ".join(networks.names(context, context.rendered))
        yield from agent.desired_agent(context)
        yield from models.desired_models(context)


def _observed_facts(context: ReconcileContext) -> Iterator[tuple[str, str]]:
    """Yield what the engine shows of the sandbox."""
    if context.blind:
        yield "engine", f"not observable: {context.blind}; what follows was observed last"
    if context.container is None:
        yield "container", "none"
    else:
        yield from _container(context, context.container)
    for container in context.extra:
        yield "another container", f"{container.name} ({container.id[:12]}): {container.state}"


def _container(context: ReconcileContext, container: Container) -> Iterator[tuple[str, str]]:
    """Yield what is observed of the sandbox's container, and how it differs from its spec."""
    yield "container", f"{container.name} ({container.id[:12]})"
    exit_text = f", exit code {container.exit_code}" if container.state in ENDED else ""
    yield "state", f"{container.state}{exit_text}"
    if container.started_at:
        yield "started", _ago(context.now, container.started_at)
    yield "limits", _limits(container.limits) if container.limits else "not known"
    yield "runtime", container.runtime or "not known"
    if container.state is not State.UNKNOWN:
        whose = "shared with every sandbox that has it" if user_ids.shares(context) else "its own"
        yield "user", f"{user_ids.user_label(container)} ({whose})"
    if container.frozen_memory is not None:
        resident, swapped = container.frozen_memory.resident_bytes, container.frozen_memory.swapped_bytes
        yield "memory", f"{format_bytes(resident)} in memory, {format_bytes(swapped)} in swap"
    yield "network", ", ".join(container.networks) or "none at all"
    yield from agent.observed_agent(context, container)
    yield from models.observed_models(context)
    if context.rendered is not None:
        for field, observed, want in drift.differences(context.rendered.config.limits, container):
            yield "differs", f"{field} found {observed}, desired {want}"
        why = drift.needs_new_container(context, container, context.rendered)
        if why:
            yield "differs", why
        elif drift.is_outdated(container, context.rendered) or mounts.waiting(context, container, context.rendered):
            yield "differs", "rendered differently now; takes effect at its next start"
    if context.lost_runtime:
        yield "differs", f"the engine has no runtime {context.lost_runtime}; created again at its next start"
    binding = drift.lasting(container)
    if binding:
        yield "differs", f"bound to the {binding} out-of-band; created again at its next start"


def _remembered_facts(state: InstanceState, now: float) -> Iterator[tuple[str, str]]:
    """Yield what the record of the sandbox tells of earlier runs and calls."""
    yield "restarts", str(state.runs.restarts)
    if state.runs.crashes:
        yield "ends in a row", str(state.runs.crashes)
    if state.runs.last_end is not None:
        end = state.runs.last_end
        when = f", {_ago(now, end.finished_at)}" if end.finished_at else ""
        yield "last end", f"{end.reason}: exit code {end.exit_code}{when}"
        if end.exit_code and end.tail is not None:
            yield from (("its last line", line) for line in end.tail.lines[-_LAST_LINES:])
    for what, failure in (("failed call", state.backoff.failure), ("failed resize", state.backoff.resize)):
        if failure is not None:
            yield what, f"{failure.reason}, {failure.count} in a row: {failure.message}"
    if state.memory.hibernation is not None:
        yield "hibernation", f"{state.memory.hibernation.phase}, {_ago(now, state.memory.hibernation.at)}"
    if state.memory.wake_seconds:
        start = f"; its last start took {state.runs.start_seconds:.3f} s" if state.runs.start_seconds else ""
        yield "last wake", f"the engine took {state.memory.wake_seconds:.3f} s{start}"
    if state.runs.stop.run.container_id and state.runs.stop.run == state.runs.last:
        yield "asked to stop", _ago(now, state.runs.stop.at)


def _limits(limits: Limits) -> str:
    shares = f" cpuShares={limits.cpu_shares}" if limits.cpu_shares else ""
    cpu, memory = format_cpu(limits.cpu_millicores), format_bytes(limits.memory_bytes)
    return f"cpu={cpu} memory={memory} pids={limits.pids}{shares}"


def _ago(now: float, earlier: float) -> str:
    return f"{max(0.0, now - earlier):.0f} s ago"
