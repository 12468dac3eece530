"""Why an object is as it is: the decision that the planner comes to now, with all that it was decided by, in words.

Nothing is kept for it: it is worked out anew from the loop's last snapshot, for one object, when somebody asks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Instance, Memory
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.container import Limits
from controller.plan.common.contexts import case_of
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.host import plan
from controller.plan.network import peers
from controller.plan.sandbox import drift, mounts, out_of_band
from controller.plan.sandbox.deaths import ENDED
from controller.plan.sandbox.sandbox import decide
from controller.policy.levels.levels import Policy

Facts = tuple[tuple[str, str], ...]
VERDICTS = ("AsAsked", "Acting", "Waiting", "Refused", "Unknown", "NotSeenYet")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was wanted, seen and remembered (names and words), and what follows from it.

    `verdict` is one of VERDICTS. `actions` are the engine calls that are due, `under_way` whether workers carry out
    calls for it just now. `until` is when it is looked at again at the latest if nothing happens (Unix seconds).
    """

    verdict: str
    reason: str
    message: str
    wanted: Facts = ()
    seen: Facts = ()
    remembered: Facts = ()
    actions: tuple[Action, ...] = ()
    under_way: bool = False
    until: float | None = None


def explain(snapshot: Snapshot, uid: str, policy: Policy) -> Explanation:
    """The explanation for one object. One that the loop has not seen yet has none but that."""
    sandbox = snapshot.sandboxes.get(uid)
    if sandbox is None or snapshot.observed.revision == 0:
        return Explanation("NotSeenYet", "NotSeenYet", "the loop has not looked at it yet; ask again in a moment")
    case = case_of(snapshot, sandbox, policy)
    decision = _within_the_host(snapshot, case, decide(case), policy)
    instance = snapshot.instances.get(uid)
    return Explanation(
        verdict=_verdict(case, decision),
        reason=decision.reason or ("Acting" if decision.actions else "AsAsked"),
        message=decision.message or _without_words(decision),
        wanted=tuple(_wanted(case)),
        seen=tuple(_seen(case)),
        remembered=(*_remembered(decision.memory, case.now), *_held(instance)),
        actions=decision.actions,
        under_way=uid in snapshot.in_flight,
        until=decision.until,
    )


def _within_the_host(snapshot: Snapshot, case: Case, alone: Decision, policy: Policy) -> Decision:
    """What the whole host's plan makes of the decision for this one alone: quotas and pools may let it wait."""
    uid = case.obj.uid
    world = replace(snapshot, in_flight=snapshot.in_flight - {uid}, results=MappingProxyType({}))
    decided = plan(world, policy, policy.version())
    actions = next((each.actions for each in decided.groups if each.ref.uid == uid), ())
    held = next((each for each in decided.deferrals if each.ref.uid == uid), None)
    if held is None:
        return replace(alone, actions=actions)
    return replace(alone, actions=actions, reason=held.reason, message=held.message, until=held.until)


def _held(instance: Instance | None) -> Iterator[tuple[str, str]]:
    """What the store holds for it."""
    if instance is None:
        return
    if instance.memory.launch:
        yield "launch", instance.memory.launch
    if instance.memory.pool:
        yield "pool", "counts among the boxes of a pool"
    if instance.reserves.memory_bytes:
        yield "reserved", _limits(instance.reserves)


def _verdict(case: Case, decision: Decision) -> str:
    if case.blind or decision.reason == "Unreadable":
        return "Unknown"
    if decision.actions or decision.finalize:
        return "Acting"
    if decision.reason == "Refused" or (decision.memory.failure and decision.memory.failure.terminal):
        return "Refused"
    rests = decision.finished or decision.reason in ("", "Suspended", "Paused")
    return "AsAsked" if rests and decision.until is None else "Waiting"


def _without_words(decision: Decision) -> str:
    return "; ".join(dict.fromkeys(each.why for each in decision.actions)) or "it is as its spec asks"


def _wanted(case: Case) -> Iterator[tuple[str, str]]:
    if case.deleting:
        yield "deletion", "asked for"
    if case.spec is not None:
        yield "runState", case.spec.run_state
        yield "restartPolicy", case.spec.restart_policy
    for each in case.refusals:
        yield f"refused {each.field}", each.message
    if case.rendered is not None:
        config = case.rendered.config
        yield "container", config.name
        yield "image", config.image
        yield "limits", _limits(config.limits)
        yield "network", ", ".join(peers.networks(case, case.rendered))


def _seen(case: Case) -> Iterator[tuple[str, str]]:
    if case.blind:
        yield "engine", f"cannot be looked at: {case.blind}; what follows was seen last"
    if case.container is None:
        yield "container", "none"
    else:
        yield from _container(case, case.container)
    for each in case.extra:
        yield "another container", f"{each.name} ({each.id[:12]}): {each.state}"


def _container(case: Case, container: Container) -> Iterator[tuple[str, str]]:
    yield "container", f"{container.name} ({container.id[:12]})"
    ended = f", exit code {container.exit_code}" if container.state in ENDED else ""
    yield "state", f"{container.state}{ended}"
    if container.started_at:
        yield "started", _ago(case.now, container.started_at)
    yield "limits", _limits(container.limits) if container.limits else "not known"
    yield "network", ", ".join(container.networks) or "none at all"
    if case.rendered is not None:
        for field, found, want in drift.differences(case.rendered.config.limits, container):
            yield "differs", f"{field} found {found}, wanted {want}"
        why = drift.needs_new_container(case, container, case.rendered)
        if why:
            yield "differs", why
        elif drift.outdated(container, case.rendered) or mounts.waiting(case, container, case.rendered):
            yield "differs", "rendered differently now; takes effect at its next start"
    held = out_of_band.lasting(container)
    if held:
        yield "differs", f"held to the {held} by hand; made anew at its next start"


def _remembered(memory: Memory, now: float) -> Iterator[tuple[str, str]]:
    yield "restarts", str(memory.restarts)
    if memory.crashes:
        yield "ends in a row", str(memory.crashes)
    if memory.last_end is not None:
        end = memory.last_end
        when = f", {_ago(now, end.finished_at)}" if end.finished_at else ""
        yield "last end", f"{end.reason}: exit code {end.exit_code}{when}"
    for what, failure in (("failed call", memory.failure), ("failed resize", memory.resize)):
        if failure is not None:
            yield what, f"{failure.reason}, {failure.count} in a row: {failure.message}"
    if memory.asked_to_stop[0] and memory.asked_to_stop == memory.run:
        yield "asked to stop", _ago(now, memory.asked_to_stop_at)


def _limits(limits: Limits) -> str:
    shares = f" cpuShares={limits.cpu_shares}" if limits.cpu_shares else ""
    cpu, memory = format_cpu(limits.cpu_millicores), format_bytes(limits.memory_bytes)
    return f"cpu={cpu} memory={memory} pids={limits.pids}{shares}"


def _ago(now: float, then: float) -> str:
    return f"{max(0.0, now - then):.0f} s ago"
