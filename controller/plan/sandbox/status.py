"""The status of a Sandbox, computed from what was decided and seen. Every condition is written on every pass."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from controller.kinds.common.log_tail import Tail
from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.instance_record import Termination
from controller.kinds.runtime.container import Limits
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network import bridge, egress, guard, peers
from controller.plan.sandbox import attest, claim, disk, drift, idle, mounts, out_of_band, probes
from controller.plan.sandbox.carried import carried

_LAST_SIGNAL = 64


def status(case: Case, decision: Decision) -> dict[str, Any]:
    """The whole status as JSON. Times in it are RFC 3339."""
    memory, container = decision.memory, case.container
    prior = {each["type"]: each for each in case.obj.status.get("conditions", ())}
    made: dict[str, Any] = {
        "observedGeneration": case.obj.generation,
        "conditions": [
            dated(each, prior.get(each.type), case.obj.generation, case.now) for each in conditions(case, decision)
        ],
        "restartCount": memory.restarts,
    }
    if memory.launch:
        made["launchType"], _, made["launchReason"] = memory.launch.partition(": ")
    if container is not None:
        made["instanceRef"] = {"name": container.name, "containerID": container.id}
        made["image"] = {"id": container.image_id}
        if container.limits is not None:
            made["resources"] = {"limits": limits_to_json(container.limits)}
        if container.started_at:
            made["startTime"] = rfc3339(container.started_at)
    if memory.last_end is not None:
        made["lastTermination"] = _termination(memory.last_end)
    return carried(case.obj.status, made)


def _termination(end: Termination) -> dict[str, Any]:
    """The death record. A time that nobody knows is left out; `signal` is the one that the exit code tells of."""
    signal = end.exit_code - 128 if 128 < end.exit_code <= _LAST_SIGNAL + 128 else None
    tail = end.tail or Tail(note="not read yet")
    made = {
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
    return {name: value for name, value in made.items() if value is not None}


def limits_to_json(limits: Limits) -> dict[str, Any]:
    """Limits as a spec would write them."""
    made: dict[str, Any] = {
        "cpu": format_cpu(limits.cpu_millicores),
        "memory": format_bytes(limits.memory_bytes),
        "pids": limits.pids,
    }
    made |= {"disk": format_bytes(limits.disk_bytes)} if limits.disk_bytes else {}
    return made | ({"gpus": limits.gpus} if limits.gpus else {})


def rfc3339(seconds: float) -> str:
    """Unix seconds in the notation of the Kubernetes API."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dated(made: Condition, prior: Mapping[str, Any] | None, generation: int, now: float) -> dict[str, Any]:
    """A condition as JSON. Its time of transition moves only when its status does; `prior` is what was stored."""
    kept = prior is not None and prior.get("status") == made.status
    return {
        "type": made.type,
        "status": made.status,
        "reason": made.reason,
        "message": made.message,
        "observedGeneration": generation,
        "lastTransitionTime": prior["lastTransitionTime"] if prior and kept else rfc3339(now),
    }


def conditions(case: Case, decision: Decision) -> Iterator[Condition]:
    """All conditions, in the order of api.md."""
    yield _ready(case, decision)
    yield _accepted(case)
    yield _scheduled(decision)
    yield _provisioned(case, decision)
    yield _resized(case, decision)
    yield disk.condition(case)
    yield peers.ready(case, bridge.ready(case) or egress.ready(case))
    yield attest.condition(case)
    yield _outdated(case)
    yield _suspended(case, decision)
    yield _flag("Finished", decision.finished, decision.reason, decision.message, "NotFinished")
    yield _degraded(decision, case.container)


def _scheduled(decision: Decision) -> Condition:
    if decision.reason in claim.WITHHELD:
        return Condition("Scheduled", "False", decision.reason, decision.message)
    return decision.scheduled or Condition("Scheduled", "True", "Assigned", "to this host")


def _flag(type_: str, on: bool, reason: str, message: str, otherwise: str) -> Condition:
    return Condition(type_, "True", reason, message) if on else Condition(type_, "False", otherwise)


def _ready(case: Case, decision: Decision) -> Condition:
    container = case.container
    if case.blind or decision.reason == "Unreadable":
        return Condition("Ready", "Unknown", decision.reason, decision.message)
    unguarded = None if case.deleting else guard.unready(case)
    if unguarded is not None:
        return unguarded
    asked = case.spec.run_state if case.spec else "Suspended"
    up = container is not None and container.state is State.RUNNING and asked == "Running" and not case.deleting
    pending, words = _pending(case, decision) if up else ("", "")
    if pending:
        return Condition("Ready", "False", pending, words)
    if up and not _interrupts(decision):
        return Condition("Ready", "True", "Running", "its container runs")
    return Condition("Ready", "False", decision.reason or "NotRunning", decision.message)


def _pending(case: Case, decision: Decision) -> tuple[str, str]:
    """The reason and the words why a box that runs is not ready yet."""
    unbound = mounts.unready(case)
    return unbound if unbound[0] else probes.unready(case, decision.memory)


def _interrupts(decision: Decision) -> bool:
    """Whether a running container is on its way out, or not the sandbox's own yet."""
    return decision.reason in ("Recreating", "Suspending", "Stopping", "Terminating", claim.REASON, attest.REASON)


def _accepted(case: Case) -> Condition:
    if not case.refusals:
        return Condition("Accepted", "True", "Admitted")
    return Condition(
        "Accepted", "False", "Refused", "; ".join(f"{each.field}: {each.message}" for each in case.refusals)
    )


def _provisioned(case: Case, decision: Decision) -> Condition:
    if case.blind:
        return Condition("Provisioned", "Unknown", decision.reason, decision.message)
    container, rendered = case.container, case.rendered
    if container is None or rendered is None:
        return Condition("Provisioned", "False", decision.reason or "NoContainer", decision.message)
    if container.template_hash != rendered.template_hash:
        return Condition("Provisioned", "False", "Recreating", decision.message)
    return Condition("Provisioned", "True", "ContainerCreated")


def _resized(case: Case, decision: Decision) -> Condition:
    container, rendered = case.container, case.rendered
    if case.blind:
        return Condition("Resized", "Unknown", decision.reason, decision.message)
    if container is None or container.limits is None or rendered is None:
        return Condition("Resized", "Unknown", "NotVerified", "no limits to read: the container does not run")
    differing = [field for field, _, _ in drift.differences(rendered.config.limits, container)]
    if not differing:
        return Condition("Resized", "True", "InForce", "limits read back as asked")
    if decision.deferred:
        return Condition("Resized", "False", "Deferred", decision.deferred)
    failure = decision.memory.resize
    if failure is None:
        return Condition("Resized", "False", "InProgress", ", ".join(differing))
    return Condition("Resized", "False", "Infeasible" if failure.terminal else "Deferred", failure.message)


def _outdated(case: Case) -> Condition:
    container, rendered = case.container, case.rendered
    old = False
    if container is not None and rendered is not None:
        old = drift.outdated(container, rendered) or bool(mounts.waiting(case, container, rendered))
    message = "its template, Paddock, a policy or a default changed since; takes effect at its next start"
    return _flag("Outdated", old, "RenderedDifferently", message, "UpToDate")


def _suspended(case: Case, decision: Decision) -> Condition:
    if decision.reason in idle.REASONS and not decision.delete:
        return Condition("Suspended", "True", decision.reason, decision.message)
    asked = case.spec is not None and case.spec.run_state == "Suspended" and not case.blind
    stopped = case.container is None or case.container.state in (State.CREATED, State.EXITED, State.DEAD)
    return _flag("Suspended", asked and stopped, "Suspended", "runState is Suspended", "NotSuspended")


def _degraded(decision: Decision, container: Container | None) -> Condition:
    """Something keeps failing, and this is what."""
    memory = decision.memory
    if decision.reason == "CrashLoopBackOff":
        return Condition("Degraded", "True", "CrashLoopBackOff", decision.message)
    failure = memory.failure
    trouble = failure is not None and (failure.terminal or failure.count > 0) and decision.reason == failure.reason
    if trouble and failure is not None:
        return Condition("Degraded", "True", failure.reason, failure.message)
    return out_of_band.degraded(container) or Condition("Degraded", "False", "AsExpected")
