"""The whole host in one pass: plan(snapshot) -> Plan. The only file that knows the order of the deciders.

Where deciders disagree the order is: deletion, security, pressure, quota, lifecycle, pool. Called by the loop and
by `diff`; makes no call and keeps nothing but memos, which change no answer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from controller.kinds.common.labels import container_name, egress_uid
from controller.kinds.meta import Event
from controller.kinds.planning.action import CreateContainer
from controller.kinds.planning.instance_record import REFUSED, SANDBOX, Instance, Memory
from controller.kinds.planning.plan import Deferral, Deletion, Group, Plan, Probing, Sample, StatusWrite, Writes
from controller.kinds.planning.snapshot import Pool, Sandbox, Snapshot
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import FINALIZER
from controller.plan.capacity import preemption, preload, pressure
from controller.plan.capacity.orphans import sweep
from controller.plan.capacity.quota import WAITS, Room, claim, scheduled, turn_of, without_room
from controller.plan.capacity.quota import statuses as quota_statuses
from controller.plan.common.altered import altered
from controller.plan.common.audited import starts as audited_starts
from controller.plan.common.backoff import fold
from controller.plan.common.contexts import case_with, rendered_with
from controller.plan.common.events import of_result
from controller.plan.common.plan_builder import Asking, Draft
from controller.plan.common.plan_builder import Memo as Memo
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network import egress, peers, stray_networks
from controller.plan.pool import refill, warm
from controller.plan.pool import sandboxpool as pools
from controller.plan.pool.sandboxpool import sharing
from controller.plan.pool.stats import ready_ones, retirements
from controller.plan.sandbox import disk, gpus, probes
from controller.plan.sandbox.claim import EXHAUSTED, SHARED, WITHHELD
from controller.plan.sandbox.claim import REASON as CLAIMING
from controller.plan.sandbox.log_tail import remember
from controller.plan.sandbox.sandbox import decide
from controller.plan.sandbox.status import status
from controller.plan.securityprofile import tell as tell_profiles
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import NO_LIMITS


def plan(snapshot: Snapshot, policy: Policy, policy_version: str, memo: Memo | None = None) -> Plan:
    """Decide for every object that has nothing in flight. A host that was never looked at gets an empty plan."""
    if snapshot.observed.revision == 0:
        return Plan(snapshot.now)
    memo = memo if memo is not None else Memo()
    memo.fit(policy_version)
    snapshot = pools.without_used(snapshot)
    members = _members(snapshot, memo)
    planned = {**snapshot.sandboxes, **members} if members else snapshot.sandboxes
    if len(memo.rendered) > len(planned):
        memo.keep_only(planned)
    draft = Draft(pulling=preload.under_way(snapshot, memo))
    refill.hold_back(draft, snapshot, members)
    for uid, sandbox, key in _unsettled(snapshot, planned, memo, draft.wakes):
        _consider(draft, snapshot, sandbox, policy, memo, uid, key)
    _give_room(draft, snapshot, memo)
    _quota_statuses(draft, snapshot, memo)
    tell_profiles(draft, snapshot, policy, memo)
    for each in preemption.in_order(snapshot.pools.values()):
        _turn_over(draft, snapshot, each, policy, memo)
    _sweep(draft, snapshot, memo)
    return _finish(draft, snapshot)


def _members(snapshot: Snapshot, memo: Memo) -> Mapping[str, Sandbox]:
    """What is warm in the pools, as sandboxes to be planned, by uid."""
    if not snapshot.pools:
        return {}
    return {
        uid: memo.member(snapshot.pools[each.parent_uid], each)
        for uid, each in snapshot.instances.items()
        if each.role in (pools.WARM, pools.RETIRED) and each.parent_uid in snapshot.pools
    }


def _turn_over(draft: Draft, snapshot: Snapshot, pool: Pool, policy: Policy, memo: Memo) -> None:
    """What a pool itself needs, once its members have been looked at."""
    if snapshot.observed.blind:
        return
    own = [each for each in snapshot.instances.values() if each.memory.pool == pool.obj.uid]
    decided = {each.uid: each for each in draft.instances}
    members = []
    for each in own:
        if each.role == pools.WARM:
            sandbox = memo.member(pool, each)
            rendered, _ = rendered_with(sandbox, policy, memo, each.memory.hostname)
            now_known = decided.get(each.uid, each)
            case = case_with(snapshot, sandbox, policy, memo, now_known.memory)
            made_of = pools.member_of(pool, now_known, case.container, rendered, snapshot.now)
            short = draft.short.get(each.uid)
            members.append(replace(made_of, trouble=f"QuotaExceeded: {short}") if short else made_of)
    going = sum(each.role == pools.RETIRED for each in own)
    held = len(own) - len(members) - going
    awaited = held + draft.granted[pool.obj.uid] + draft.queued[pool.obj.uid]
    crowded = draft.room is not None and not {pool.obj.namespace, ""}.isdisjoint(draft.room.crowded)
    lacks = snapshot.pressure.words()
    image = "" if own or lacks else preload.of_pool(draft, snapshot, pool, policy, memo)
    made = pools.turn_over(pool, members, going, held, awaited, snapshot.instances.keys(), snapshot.now, lacks, image)
    draft.events += pressure.told(pool.obj.ref, made.retired, snapshot.pressure, snapshot.now)
    made = preemption.give_way(draft, snapshot, pool, made, members)
    draft.warm += ready_ones(pool, members)
    leaving = {each.uid for each in made.retired}
    busy = snapshot.in_flight | {each.ref.uid for each in draft.groups}
    draft.instances = [each for each in draft.instances if each.uid not in leaving - busy]
    gone = [each for each in made.retired if each.uid not in busy]
    draft.instances += (*gone, *made.new)
    draft.retirements += retirements(pool, members, gone, crowded=crowded or bool(lacks), now=snapshot.now)
    if made.status != pool.obj.status:
        draft.statuses.append(StatusWrite(pool.obj.ref, made.status))
    if made.until is not None:
        draft.wakes.append(made.until)
    if pool.obj.deleted_at is not None and not members and not going and FINALIZER in pool.obj.finalizers:
        draft.finalized.append(pool.obj.ref)


def _unsettled(
    snapshot: Snapshot, planned: Mapping[str, Sandbox], memo: Memo, wakes: list[float]
) -> Iterator[tuple[str, Sandbox, tuple[object, ...]]]:
    """The objects that may need something: all but those in flight and those that nothing happened to.

    The timers of the latter go into `wakes`.
    """
    containers, instances = snapshot.observed.containers, snapshot.instances
    settled, in_flight, timers = memo.settled, snapshot.in_flight, memo.timers
    observed = snapshot.observed
    unguarded = (observed.unguarded or snapshot.guarded.words, observed.guard_lost, snapshot.guarded.broken)
    blind = (observed.blind, observed.lost, snapshot.pressure.critical, unguarded, observed.networks)
    moved = snapshot.results.keys() | disk.to_look_at(snapshot)
    probed, activity, now = snapshot.probes, snapshot.activity, snapshot.now
    for uid, sandbox in planned.items():
        if uid in in_flight:
            continue
        seen, held, used = containers.get(uid), instances.get(uid), activity.get(uid)
        beside = containers.get(egress_uid(uid)) if observed.networks else None
        known = settled.get(uid)
        if (
            known is not None
            and known[0] is sandbox
            and known[1] is seen
            and known[2] is held
            and known[3] == blind
            and known[4] is probed.get(uid)
            and known[5] is used
            and known[6] is beside
            and uid not in moved
        ):
            timer = timers.get(uid)
            if timer is None:
                continue
            if timer[0] <= now < timer[1]:
                wakes.append(timer[1])
                continue
        yield uid, sandbox, (sandbox, seen, held, blind, probed.get(uid), used, beside)


def _consider(
    draft: Draft,
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
        memory = remember(fold(memory, result, snapshot.now), result)
        draft.events += _about(snapshot, instance, of_result(sandbox.obj, result, snapshot.now))
    case = case_with(snapshot, sandbox, policy, memo, memory)
    decision = refill.later(draft, case, preload.single_flight(draft, snapshot, case, decide(case)))
    if any(isinstance(each, CreateContainer) for each in decision.actions):
        if result is None and not refill.may_start(draft, instance):
            return
        decision = _launched(draft, snapshot, sandbox, decision, memory, policy)
    asked = Asking(case, decision, claim(case, decision, instance), instance, key, quiet=result is None)
    if asked.claim.asks:
        draft.asking.append(asked)
        return
    told = altered(decision, scheduled=scheduled(case, decision, asked.claim))
    _conclude(draft, snapshot, memo, asked, told, asked.claim.whole if asked.claim.seated else None)


def _give_room(draft: Draft, snapshot: Snapshot, memo: Memo) -> None:
    """Conclude for those that ask for room: after all that holds or frees some, and in their order."""
    if not draft.asking:
        return
    room = draft.room = _room(draft, snapshot)
    for each in sorted(draft.asking, key=lambda each: turn_of(each.case)):
        paused = pressure.pauses(snapshot.pressure, each.claim)
        words = paused or room.ask(each.case, each.claim, each.decision.memory.pool)
        if not words:
            _conclude(draft, snapshot, memo, each, each.decision, each.claim.whole)
            continue
        if each.case.obj.kind != "Sandbox":
            draft.short[each.case.obj.uid] = words
        told = without_room(each.case, each.claim, words, pressure.REASON if paused else WAITS)
        # Not settled: it is decided anew in every pass, for room may be made by anything.
        reserves = each.claim.base if each.claim.seated else None
        _conclude(draft, snapshot, memo, replace(each, quiet=False, claim=each.claim.refused()), told, reserves)


def _room(draft: Draft, snapshot: Snapshot) -> Room:
    """The room there is, with what each of those that ask for more holds whatever becomes of that."""
    gone = {ref.uid for ref in draft.finalized}
    asking = [_holding(each) for each in draft.asking]
    known = (*snapshot.instances.values(), *draft.instances, *filter(None, asking))
    instances = {each.uid: each for each in known}
    kept = (each for each in instances.values() if each.parent_uid not in gone)
    return Room(kept, snapshot.quotas, snapshot.observed.facts, snapshot.pools.values())


def _holding(asked: Asking) -> Instance | None:
    """The record of one that asks for room, without what it asks for."""
    return _instance(asked.case, asked.decision, asked.instance, asked.claim.base if asked.claim.seated else None)


def _quota_statuses(draft: Draft, snapshot: Snapshot, memo: Memo) -> None:
    """The quotas' statuses, when anything that they are computed from may have moved."""
    key = (snapshot.quotas, snapshot.observed.facts, len(snapshot.instances))
    moved = bool(draft.instances or draft.finalized)
    if not snapshot.quotas or (not moved and memo.quotas == key):
        return
    room = draft.room or _room(draft, snapshot)
    written = [StatusWrite(each.obj.ref, made) for each, made in quota_statuses(room, snapshot.quotas, snapshot.now)]
    draft.statuses += written
    memo.quotas = () if moved or written else key


def _conclude(
    draft: Draft, snapshot: Snapshot, memo: Memo, asked: Asking, decision: Decision, reserves: Limits | None
) -> None:
    """Note what comes of one object. `reserves` None: it has no seat, and gets no record where it has none."""
    case, sandbox, uid = asked.case, asked.case.obj, asked.case.obj.uid
    decision = peers.attend(case, gpus.assign(draft, snapshot, case, decision))
    draft.audit += audited_starts(case, decision)
    waits = decision.until is not None or decision.sample is not None or decision.reason in WITHHELD
    quiet = not (decision.actions or decision.finalize or waits)
    quiet = _write(draft, snapshot, case, decision, asked.instance, reserves) and quiet and asked.quiet
    quiet = _write_egress(draft, asked, decision) and quiet
    if quiet:
        memo.settled[uid] = asked.key
    else:
        memo.settled.pop(uid, None)
    watches = probes.watches(case, decision.memory)
    if watches != (case.probed.watches if case.probed else ()):
        draft.probes.append(Probing(sandbox.ref, watches))
    _time(draft, case, decision, memo)
    if decision.actions:
        urgent = decision.reason == CLAIMING
        draft.groups.append(Group(sandbox.ref, sandbox.generation, case.deleting, decision.actions, urgent))
    elif decision.reason and not decision.finalize:
        draft.deferrals.append(Deferral(sandbox.ref, decision.reason, decision.message, decision.until))
    elif decision.deferred:
        draft.deferrals.append(Deferral(sandbox.ref, "Deferred", decision.deferred, decision.until))
    if decision.until is not None:
        draft.wakes.append(decision.until)


def _launched(
    draft: Draft, snapshot: Snapshot, sandbox: Sandbox, decision: Decision, before: Memory, policy: Policy
) -> Decision:
    """The decision to make a container, with how it came to that; or to wait, where a pool is required and full."""
    spec = sandbox.spec
    if spec is not None and not before.launch and (words := sharing(warm.pools_for(snapshot, sandbox.obj, spec))):
        return Decision(before, SHARED, words)
    required = spec is not None and spec.pool_policy == "Require"
    if not required or before.launch:
        return warm.launched_cold(snapshot, sandbox, decision, before, policy)
    pool, missing = pools.place(snapshot, sandbox, draft.granted)
    if missing:
        draft.queued[pool] += 1
        return Decision(before, EXHAUSTED, missing)
    draft.granted[pool] += 1
    launch = "Cold: no member of the pool was ready; started as one of the pool's"
    return replace(decision, memory=replace(decision.memory, launch=launch, pool=pool))


def _time(draft: Draft, case: Case, decision: Decision, memo: Memo) -> None:
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


def _write(
    draft: Draft,
    snapshot: Snapshot,
    case: Case,
    decision: Decision,
    instance: Instance | None,
    reserves: Limits | None,
) -> bool:
    """Note what the store has to hold of this decision. True when it holds all of it already."""
    member = instance is not None and bool(instance.member_uid)
    if decision.finalize and member and instance is not None:
        draft.retired.append(instance)
        return False
    if decision.finalize:
        draft.finalized.append(case.obj.ref)
        return False
    draft.events += _about(snapshot, instance, decision.events)
    if decision.delete:
        draft.deletions.append(Deletion(case.obj.ref, case.obj.generation, case.now))
    draft.drift[case.obj.uid] = decision.drift
    written = case.obj.status if member else status(case, decision)
    changed = written != case.obj.status
    if changed:
        draft.statuses.append(StatusWrite(case.obj.ref, written))
    wanted = _instance(case, decision, instance, reserves)
    if wanted is not None and wanted != instance:
        draft.instances.append(wanted)
    return not (changed or decision.events or decision.delete) and wanted == instance


def _write_egress(draft: Draft, asked: Asking, decision: Decision) -> bool:
    """Note what the store has to hold of the egress container. True when it holds all of it already."""
    known = asked.case.around.record
    wanted, gone = egress.record(asked.case, decision, asked.instance, asked.claim.beside.whole)
    if gone and known is not None and (not decision.finalize or (asked.instance and asked.instance.member_uid)):
        draft.retired.append(known)
    if wanted is not None and wanted != known:
        draft.instances.append(wanted)
    return not gone and wanted == known


def _about(snapshot: Snapshot, instance: Instance | None, events: Iterable[Event]) -> Iterable[Event]:
    """The events; those of a pool's member are about its pool, which has a name that people know."""
    if instance is None or not instance.member_uid:
        return events
    ref, name = snapshot.pools[instance.parent_uid].obj.ref, instance.memory.hostname
    return [replace(each, ref=ref, message=f"{name}: {each.message}") for each in events]


def _instance(case: Case, decision: Decision, instance: Instance | None, reserves: Limits | None) -> Instance | None:
    """The record of the object's container, as it has to be before anything is done; None: it has none."""
    if instance is not None:
        role = instance.role if instance.member_uid else REFUSED if reserves is None else SANDBOX
        return altered(instance, memory=decision.memory, reserves=reserves or NO_LIMITS, role=role)
    if reserves is None:
        return None
    obj = case.obj
    return Instance(
        name=container_name(obj.name, obj.uid),
        parent_uid=obj.uid,
        parent_kind=obj.kind,
        namespace=obj.namespace,
        parent_name=obj.name,
        role=SANDBOX,
        reserves=reserves,
        created_at=case.now,
        memory=decision.memory,
    )


def _sweep(draft: Draft, snapshot: Snapshot, memo: Memo) -> None:
    """What belongs to no object comes last: the objects' own deletions have taken theirs."""
    draft.orphans = swept = sweep(snapshot, memo.orphans)
    draft.groups += swept.groups
    draft.deferrals += swept.deferrals
    draft.events += swept.events
    draft.wakes += [each.until for each in swept.deferrals if each.until is not None]
    stray_networks.sweep(draft, snapshot, memo)


def _finish(draft: Draft, snapshot: Snapshot) -> Plan:
    return Plan(
        now=snapshot.now,
        groups=tuple(draft.groups),
        deferrals=tuple(draft.deferrals),
        writes=Writes(
            statuses=tuple(draft.statuses),
            instances=tuple(draft.instances),
            events=tuple(draft.events),
            finalized=tuple((ref, FINALIZER) for ref in draft.finalized),
            retired=tuple(draft.retired),
            deletions=tuple(draft.deletions),
            audit=tuple(draft.audit),
            ceilings=draft.room.ceilings() if draft.room else (),
        ),
        next_wake=min(draft.wakes, default=None),
        probes=tuple(draft.probes),
        drift=MappingProxyType(draft.drift),
        orphans=draft.orphans.seen,
        orphans_removed=draft.orphans.removed,
        samples=tuple(draft.samples),
        holds=MappingProxyType(draft.holds),
        reaped=tuple(draft.reaped),
        shortages=tuple(draft.room.shortages) if draft.room else (),
        warm=tuple(draft.warm),
        retirements=tuple(draft.retirements),
    )
