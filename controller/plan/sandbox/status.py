"""The status of a Sandbox, computed from the decision and the observation. Every pass writes every condition."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller.kinds.common.log_tail import Tail
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import State
from controller.kinds.planning.binding import pending_words
from controller.kinds.planning.instance_state import Termination
from controller.plan.base.reasons import CLAIMING, WITHHELD
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext
from controller.plan.base.status_json import dated, limits_to_json, rfc3339
from controller.plan.network import networks
from controller.plan.sandbox import (
    agent,
    attest,
    contexts,
    disk_limit,
    drift,
    files,
    guard,
    hibernation,
    idle,
    models,
    mounts,
    probes,
    user_ids,
)

_INTERRUPTIONS = (
    *("Recreating", "Restarting", "Suspending", "Stopping", "Terminating"),
    *(CLAIMING, attest.REASON, attest.MOUNTS_GONE, drift.CGROUPS_LOST, hibernation.HIBERNATING),
)
_LAST_SIGNAL = 64
# All that `status` may write; a test compares the two.
FIELDS = frozenset(
    {
        "observedGeneration",
        "conditions",
        "restartCount",
        "instanceRef",
        "image",
        "resources",
        "launchReason",
        "launchType",
        "startTime",
        "firstStartTime",
        "lastTermination",
        "user",
        "userShared",
        "host",
        "contexts",
        "endedContexts",
    }
)
# Those that come from the container. A pass that can't observe it keeps what was reported last.
_OBSERVED = ("instanceRef", "image", "resources", "startTime", "user", "userShared")
CONDITIONS = frozenset(
    {
        "Ready",
        "Accepted",
        "Scheduled",
        "Provisioned",
        "Resized",
        "DiskQuotaEnforced",
        "NetworkReady",
        "Secured",
        "Outdated",
        "Suspended",
        "Finished",
        "Degraded",
    }
)
# Conditions of some sandboxes only.
OPTIONAL_CONDITIONS = frozenset({agent.TYPE, models.TYPE, files.TYPE})
# Made once: most sandboxes have most of these.
_ASSIGNED = Condition("Scheduled", "True", "Assigned", "to this host")
_ADMITTED = Condition("Accepted", "True", "Admitted")
_CREATED = Condition("Provisioned", "True", "ContainerCreated")
_IN_FORCE = Condition("Resized", "True", "InForce", "limits read back as asked")
_UNRESERVED = "the limits are in force, and the scheduler has no room to reserve them on this host"
_NOT_VERIFIED = Condition("Resized", "Unknown", "NotVerified", "no limits to read: the container does not run")
_UNREAD = Condition("Resized", "Unknown", "NotVerified", "its limits can't be read from its cgroup now")
_UP_TO_DATE = Condition("Outdated", "False", "UpToDate")
_SUSPENDED = Condition("Suspended", "True", "Suspended", "runState is Suspended")
_NOT_SUSPENDED = Condition("Suspended", "False", "NotSuspended")
_NOT_FINISHED = Condition("Finished", "False", "NotFinished")
_AS_EXPECTED = Condition("Degraded", "False", "AsExpected")


def status(context: ReconcileContext, decision: Decision) -> dict[str, Any]:
    """Return the whole status as JSON. Times in it are RFC 3339."""
    state, container = decision.state, context.container
    prior = {condition["type"]: condition for condition in context.obj.status.get("conditions", ())}
    fields: dict[str, Any] = {
        "observedGeneration": context.obj.generation,
        "conditions": [
            dated(condition, prior.get(condition.type), context.obj.generation, context.now)
            for condition in conditions(context, decision)
        ],
        "restartCount": state.runs.restarts,
        "host": context.host,
    }
    if state.claim.launch:
        fields |= {"launchType": state.claim.launch, "launchReason": state.claim.launch_reason}
    if container is not None:
        fields["instanceRef"] = {"name": container.name, "containerID": container.id}
        fields["image"] = {"id": container.image_id}
        if container.limits is not None:
            fields["resources"] = {"limits": limits_to_json(container.limits)}
        if container.started_at:
            # A claimed container has run before: the sandbox began when it was created.
            fields["startTime"] = rfc3339(max(container.started_at, context.obj.created_at))
        if container.state is not State.UNKNOWN:
            fields |= {"user": user_ids.user_label(container)} | (
                {"userShared": True} if user_ids.shares(context) else {}
            )
    elif context.blind:  # a daemon that has just started knows no container yet
        fields |= {name: context.obj.status[name] for name in _OBSERVED if name in context.obj.status}
    fields |= contexts.fields(context)
    if state.runs.first_start:
        fields["firstStartTime"] = rfc3339(state.runs.first_start)
    if state.runs.last_end is not None:
        fields["lastTermination"] = _termination(state.runs.last_end)
    return carry_over(context.obj.status, fields)


def _termination(end: Termination) -> dict[str, Any]:
    """Return the death record. An unknown time is left out; `signal` follows from the exit code."""
    signal = end.exit_code - 128 if 128 < end.exit_code <= _LAST_SIGNAL + 128 else None
    tail = end.tail or Tail(note="not read yet")
    fields = {
        "exitCode": end.exit_code,
        "signal": signal,
        "reason": end.reason,
        "startedTime": rfc3339(end.started_at),
        "finishedTime": rfc3339(end.finished_at) if end.finished_at else None,
        "restartCount": end.restarts,
        "limits": limits_to_json(end.limits) if end.limits else None,
        "generation": end.generation or None,
        "specChangedTime": rfc3339(end.changed_at) if end.changed_at else None,
        "logTail": list(tail.lines),
        "logNote": tail.note or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def conditions(context: ReconcileContext, decision: Decision) -> Iterator[Condition]:
    """Yield all conditions, in the order of api.md. A sandbox without an agent has none of an agent."""
    yield _ready(context, decision)
    yield _accepted_condition(context)
    yield _scheduled_condition(decision)
    yield _provisioned_condition(context, decision)
    yield _resized_condition(context, decision)
    yield disk_limit.condition(context)
    yield networks.condition(context)
    yield attest.condition(context)
    yield from agent.condition(context)
    yield from models.condition(context)
    yield from files.condition(context)
    yield _outdated_condition(context)
    yield _suspended_condition(context, decision)
    yield Condition("Finished", "True", decision.reason, decision.message) if decision.finished else _NOT_FINISHED
    yield _degraded_condition(context, decision)


def _scheduled_condition(decision: Decision) -> Condition:
    if decision.reason in WITHHELD:
        return Condition("Scheduled", "False", decision.reason, decision.message)
    return decision.scheduled or _ASSIGNED


def _ready(context: ReconcileContext, decision: Decision) -> Condition:
    """Return the condition Ready: what keeps it from being used comes before what it runs."""
    container = context.container
    if context.blind or decision.reason == "Unreadable":
        return Condition("Ready", "Unknown", decision.reason, decision.message)
    # A running container without its guard or network is not usable, whatever the engine says of it.
    unguarded = None if context.deleting else guard.unready(context)
    if unguarded is not None:
        return unguarded
    run_state = context.spec.run_state if context.spec else "Suspended"
    up = container is not None and container.state is State.RUNNING and run_state == "Running" and not context.deleting
    if up and not _interrupts(decision) and (missing := networks.not_ready_condition(context)) is not None:
        return missing
    # It is up, and Ready only once its probes say so.
    pending, message = _pending(context, decision) if up else ("", "")
    if pending:
        return Condition("Ready", "False", pending, message)
    if up and not _interrupts(decision):
        return Condition("Ready", "True", "Running", "its container runs")
    return Condition("Ready", "False", decision.reason or "NotRunning", decision.message)


def _pending(context: ReconcileContext, decision: Decision) -> tuple[str, str]:
    """Return the reason and message why a running sandbox is not ready yet; empty ones if it is."""
    unbound = mounts.unready(context)
    return unbound if unbound[0] else probes.unready(context, decision.state)


def _interrupts(decision: Decision) -> bool:
    """Return True if a running container is being stopped or replaced, or is not the sandbox's own yet."""
    return decision.reason in _INTERRUPTIONS


def _accepted_condition(context: ReconcileContext) -> Condition:
    """Return the condition Accepted: its spec may run, and within the quotas."""
    if context.above_quota:  # it keeps running, and is restarted; it gets no capacity that it does not hold
        return Condition("Accepted", "False", "QuotaExceeded", context.above_quota)
    if not context.refusals:
        return _ADMITTED
    return Condition(
        "Accepted", "False", "Refused", "; ".join(f"{refusal.field}: {refusal.message}" for refusal in context.refusals)
    )


def _provisioned_condition(context: ReconcileContext, decision: Decision) -> Condition:
    """Return the condition Provisioned: its container is the one of its template."""
    if context.blind:
        return Condition("Provisioned", "Unknown", decision.reason, decision.message)
    container, rendered = context.container, context.rendered
    if container is None or rendered is None:
        return Condition("Provisioned", "False", decision.reason or "NoContainer", decision.message)
    if container.template_hash != rendered.template_hash:
        return Condition("Provisioned", "False", "Recreating", decision.message)
    return _CREATED


def _resized_condition(context: ReconcileContext, decision: Decision) -> Condition:
    """Return the condition Resized: its limits are in force, or why they are not yet."""
    container, rendered = context.container, context.rendered
    if context.blind:
        return Condition("Resized", "Unknown", decision.reason, decision.message)
    if container is not None and container.cgroups_lost:
        return Condition("Resized", "Unknown", drift.CGROUPS_LOST, drift.LOST_MESSAGE)
    if container is not None and container.limits is None and container.state in ALIVE:
        return _UNREAD
    if container is None or container.limits is None or rendered is None:
        return _NOT_VERIFIED
    # Compared with the cgroup itself, not with what an update reported.
    differing = [field for field, _, _ in drift.differences(rendered.config.limits, container)]
    if not differing:
        message = pending_words(context.obj)
        return Condition("Resized", "False", "NotReserved", f"{_UNRESERVED}: {message}") if message else _IN_FORCE
    if decision.deferred:
        return Condition("Resized", "False", "Deferred", decision.deferred)
    failure = decision.state.backoff.resize
    if failure is None:
        return Condition("Resized", "False", "InProgress", ", ".join(differing))
    return Condition("Resized", "False", "Infeasible" if failure.terminal else "Deferred", failure.message)


def _outdated_condition(context: ReconcileContext) -> Condition:
    """Return the condition Outdated: its next start will render it otherwise."""
    container, rendered = context.container, context.rendered
    if container is None or rendered is None:
        return _UP_TO_DATE
    if not drift.is_outdated(container, rendered) and not mounts.waiting(context, container, rendered):
        return _UP_TO_DATE
    message = "its template, Paddock, a policy or a default changed since; takes effect at its next start"
    return Condition("Outdated", "True", "RenderedDifferently", message)


def _suspended_condition(context: ReconcileContext, decision: Decision) -> Condition:
    """Return the condition Suspended, with the code contexts that ended by it."""
    ended_names = contexts.ended_contexts(context)
    if decision.reason in idle.REASONS and not decision.delete:
        return Condition("Suspended", "True", decision.reason, contexts.with_ended(decision.message, ended_names))
    is_requested = context.spec is not None and context.spec.run_state == "Suspended" and not context.blind
    stopped = context.container is None or context.container.state in (State.CREATED, State.EXITED, State.DEAD)
    if not (is_requested and stopped):
        return _NOT_SUSPENDED
    return (
        replace(_SUSPENDED, message=contexts.with_ended(_SUSPENDED.message, ended_names)) if ended_names else _SUSPENDED
    )


def _degraded_condition(context: ReconcileContext, decision: Decision) -> Condition:
    """Return the Degraded condition: the failure that keeps recurring."""
    state = decision.state
    if decision.reason == "CrashLoopBackOff":
        return Condition("Degraded", "True", "CrashLoopBackOff", decision.message)
    failure = state.backoff.failure
    trouble = failure is not None and (failure.terminal or failure.count > 0) and decision.reason == failure.reason
    if trouble and failure is not None:
        return Condition("Degraded", "True", failure.reason, failure.message)
    return drift.degraded_condition(context.container, context.lost_runtime) or _AS_EXPECTED


def carry_over(before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status with the fields and conditions of the stored one that another version wrote.

    A field of this version that is not computed now is dropped.
    """
    foreign_fields = {name: value for name, value in before.items() if name not in FIELDS and name not in fields}
    mine = {condition["type"] for condition in fields["conditions"]} | CONDITIONS | OPTIONAL_CONDITIONS
    foreign = [condition for condition in before.get("conditions", ()) if condition["type"] not in mine]
    return {**foreign_fields, **fields, "conditions": [*fields["conditions"], *foreign]}
