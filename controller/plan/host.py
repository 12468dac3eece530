"""The whole host in one pass: plan(snapshot) -> Plan. The only file that knows the order of the deciders.

Where deciders disagree the order is: deletion, security, pressure, quota, lifecycle, pool. Called by loop/turn.py and
by `diff`; makes no call and keeps nothing but memos, which change no answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from controller.kinds.activity import Run
from controller.kinds.container import Limits
from controller.kinds.instance import Instance, Memory
from controller.kinds.labels import container_name
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed import Container, State
from controller.kinds.plan import Deferral, Deletion, Group, Plan, Sample, StatusWrite, Writes
from controller.kinds.sandbox import FINALIZER, SandboxSpec, Template
from controller.kinds.snapshot import Sandbox, Snapshot
from controller.plan.backoff import fold
from controller.plan.case import Case, Decision
from controller.plan.events import of_result
from controller.plan.sandbox import decide
from controller.plan.status import status
from controller.policy.admission import Refusal
from controller.policy.levels import Policy
from controller.policy.sandbox import Rendered, admit_with, render

_NO_LIMITS = Limits(0, 0, 0)
_RANK = {State.RUNNING: 0, State.PAUSED: 1, State.UNKNOWN: 2, State.CREATED: 3, State.EXITED: 4}


@dataclass(slots=True)
class Memo:
    """What need not be worked out again. Dropping it at any time changes no plan, only its price."""

    policy: str = ""
    rendered: dict[str, tuple[int, Template | None, Rendered | None, tuple[Refusal, ...]]] = field(default_factory=dict)
    settled: dict[str, tuple[object, ...]] = field(default_factory=dict)
    timers: dict[str, tuple[float, float]] = field(default_factory=dict)  # of the settled: since when, and due when

    def fit(self, policy: str) -> None:
        """Forget what was worked out under another policy."""
        if policy != self.policy:
            self.policy = policy
            self.rendered.clear()
            self.settled.clear()
            self.timers.clear()

    def keep_only(self, sandboxes: Mapping[str, Sandbox]) -> None:
        """Forget objects that are gone."""
        for gone in self.rendered.keys() - sandboxes.keys():
            del self.rendered[gone]
            self.timers.pop(gone, None)
            self.settled.pop(gone, None)


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    groups: list[Group] = field(default_factory=list)
    deferrals: list[Deferral] = field(default_factory=list)
    statuses: list[StatusWrite] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    finalized: list[ObjectRef] = field(default_factory=list)
    drift: list[tuple[str, str]] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    holds: dict[str, Run] = field(default_factory=dict)
    reaped: list[str] = field(default_factory=list)


def plan(snapshot: Snapshot, policy: Policy, policy_version: str, memo: Memo | None = None) -> Plan:
    """Decide for every object that has nothing in flight. A host that was never looked at gets an empty plan."""
    if snapshot.observed.revision == 0:
        return Plan(snapshot.now)
    memo = memo if memo is not None else Memo()
    memo.fit(policy_version)
    if len(memo.rendered) > len(snapshot.sandboxes):
        memo.keep_only(snapshot.sandboxes)
    draft = _Draft()
    for uid, sandbox, key in _unsettled(snapshot, memo, draft.wakes):
        _consider(draft, snapshot, sandbox, policy, memo, uid, key)
    return _finish(draft, snapshot)


def _unsettled(snapshot: Snapshot, memo: Memo, wakes: list[float]) -> Iterator[tuple[str, Sandbox, tuple[object, ...]]]:
    """The objects that may need something: all but those in flight and those that nothing happened to.

    The timers of the latter go into `wakes`.
    """
    containers, instances, results = snapshot.observed.containers, snapshot.instances, snapshot.results
    settled, in_flight, blind = memo.settled, snapshot.in_flight, snapshot.observed.blind
    timers, activity, now = memo.timers, snapshot.activity, snapshot.now
    for uid, sandbox in snapshot.sandboxes.items():
        if uid in in_flight:
            continue
        seen, held, used = containers.get(uid), instances.get(uid), activity.get(uid)
        known = settled.get(uid)
        if (
            known is not None
            and known[0] is sandbox
            and known[1] is seen
            and known[2] is held
            and known[3] == blind
            and known[4] is used
            and uid not in results
        ):
            timer = timers.get(uid)
            if timer is None:
                continue
            if timer[0] <= now < timer[1]:
                wakes.append(timer[1])
                continue
        yield uid, sandbox, (sandbox, seen, held, blind, used)


def _consider(
    draft: _Draft,
    snapshot: Snapshot,
    sandbox: Sandbox,
    policy: Policy,
    memo: Memo,
    uid: str,
    key: tuple[object, ...],
) -> None:
    instance = snapshot.instances.get(uid)
    result = snapshot.results.get(uid)
    memory = instance.memory if instance else Memory()
    if result is not None:
        memory = fold(memory, result, snapshot.now)
        draft.events += of_result(sandbox.obj, result, snapshot.now)
    case = _case(snapshot, sandbox, policy, memo, memory)
    decision = decide(case)
    quiet = not (decision.actions or decision.finalize or decision.until is not None or decision.sample is not None)
    quiet = _write(draft, case, decision, instance) and quiet and result is None
    if quiet:
        memo.settled[uid] = key
    else:
        memo.settled.pop(uid, None)
    _time(draft, case, decision, memo)
    if decision.actions:
        draft.groups.append(Group(sandbox.obj.ref, sandbox.obj.generation, case.deleting, decision.actions))
    elif decision.reason and not decision.finalize:
        draft.deferrals.append(Deferral(sandbox.obj.ref, decision.reason, decision.message, decision.until))
    if decision.until is not None:
        draft.wakes.append(decision.until)


def _time(draft: _Draft, case: Case, decision: Decision, memo: Memo) -> None:
    """Note what the decision's lifecycle timers ask for."""
    uid = case.obj.uid
    memo.timers.pop(uid, None)
    if decision.timer is not None:
        memo.timers[uid] = (case.now, decision.timer)
        draft.wakes.append(decision.timer)
    if decision.sample is not None and case.container is not None:
        draft.samples.append(Sample(uid, case.container, decision.sample))
    if decision.hold is not None:
        draft.holds[uid] = decision.hold
    if decision.reaped:
        draft.reaped.append(decision.reaped)


def _case(snapshot: Snapshot, sandbox: Sandbox, policy: Policy, memo: Memo, memory: Memory) -> Case:
    uid = sandbox.obj.uid
    rendered, refusals = _rendered(sandbox, policy, memo)
    wanted = rendered.config.name if rendered else container_name(sandbox.obj.name, uid)
    own = [each for each in snapshot.observed.containers.get(uid, ()) if _is_own(each, wanted, memory)]
    ranked = sorted(own, key=lambda each: _rank(each, wanted))
    return Case(
        now=snapshot.now,
        obj=sandbox.obj,
        spec=sandbox.spec,
        rendered=rendered,
        refusals=refusals,
        container=ranked[0] if ranked else None,
        extra=tuple(ranked[1:]),
        memory=memory,
        instance_id=snapshot.instance_id,
        blind=snapshot.observed.blind,
        activity=snapshot.activity.get(uid),
    )


def _is_own(container: Container, wanted_name: str, memory: Memory) -> bool:
    """Whether a container with the object's labels is its own: by its derived name, or because we made it."""
    return container.name == wanted_name or container.id in (memory.container, memory.run[0])


def _rank(container: Container, wanted_name: str) -> tuple[int, bool, str]:
    """Which of several containers of one object counts: what runs, then what bears the right name."""
    return _RANK.get(container.state, 9), container.name != wanted_name, container.id


def _rendered(sandbox: Sandbox, policy: Policy, memo: Memo) -> tuple[Rendered | None, tuple[Refusal, ...]]:
    obj = sandbox.obj
    known = memo.rendered.get(obj.uid)
    if known is not None and known[0] == obj.generation and known[1] is sandbox.template:
        return known[2], known[3]
    made: Rendered | None = None
    if sandbox.spec is None:
        refusals: tuple[Refusal, ...] = (Refusal("spec", sandbox.broken),)
    elif sandbox.template is None:
        refusals = (_no_template(sandbox.spec, obj.namespace),)
    else:
        refusals = admit_with(sandbox.spec, sandbox.template, policy)
        if not refusals:
            made = render(sandbox.spec, sandbox.template, name=obj.name, uid=obj.uid, policy=policy)
    memo.rendered[obj.uid] = (obj.generation, sandbox.template, made, refusals)
    return made, refusals


def _no_template(spec: SandboxSpec, namespace: str) -> Refusal:
    name = spec.template_ref.name if spec.template_ref else ""
    words = f"there is no SandboxTemplate `{name}` in namespace `{namespace}` (or it can't be read); apply it"
    return Refusal("spec.templateRef.name", words)


def _write(draft: _Draft, case: Case, decision: Decision, instance: Instance | None) -> bool:
    """Note what the store has to hold of this decision. True when it holds all of it already."""
    if decision.finalize:
        draft.finalized.append(case.obj.ref)
        return False
    if decision.delete:
        draft.deletions.append(Deletion(case.obj.ref, case.obj.generation, case.now))
    draft.events += decision.events
    draft.drift += [(case.obj.uid, field) for field in decision.drift]
    written = status(case, decision)
    changed = written != case.obj.status
    if changed:
        draft.statuses.append(StatusWrite(case.obj.ref, written))
    wanted = _instance(case, decision, instance)
    if wanted != instance:
        draft.instances.append(wanted)
    return not (changed or decision.events or decision.delete) and wanted == instance


def _instance(case: Case, decision: Decision, instance: Instance | None) -> Instance:
    """The record of the object's container, as it has to be before anything is done."""
    reserves = case.rendered.config.limits if case.rendered else instance.reserves if instance else _NO_LIMITS
    if instance is not None:
        return replace(instance, memory=decision.memory, reserves=reserves)
    obj = case.obj
    return Instance(
        name=container_name(obj.name, obj.uid),
        parent_uid=obj.uid,
        parent_kind=obj.kind,
        namespace=obj.namespace,
        parent_name=obj.name,
        role="sandbox",
        reserves=reserves,
        created_at=case.now,
        memory=decision.memory,
    )


def _finish(draft: _Draft, snapshot: Snapshot) -> Plan:
    return Plan(
        now=snapshot.now,
        groups=tuple(draft.groups),
        deferrals=tuple(draft.deferrals),
        writes=Writes(
            statuses=tuple(draft.statuses),
            instances=tuple(draft.instances),
            events=tuple(draft.events),
            finalized=tuple((ref, FINALIZER) for ref in draft.finalized),
            deletions=tuple(draft.deletions),
        ),
        next_wake=min(draft.wakes, default=None),
        drift=tuple(draft.drift),
        samples=tuple(draft.samples),
        holds=MappingProxyType(draft.holds),
        reaped=tuple(draft.reaped),
    )
