"""Who gets room: what each object's record reserves, what it asks for beyond, and who has to wait for whom.

A record reserves the more of what may be in use and of what is wanted: growth is reserved before it is carried out,
and what shrinks or stops is given back once it was seen. What is in force already is never asked for, and nothing
that runs is stopped for want of room. A record is an object's seat: one without is not counted, and has no container.

What can't start as it is (the engine refuses it, its image could not be had) holds nothing and has no seat, its record
only remembers why; while its image is being fetched anew, it has its place.

Asked in order of priority, then age. One that lacks room in a quota holds up all after it that ask in the same quota,
so that small ones can't starve a big one; but not one that could never fit: it would hold them up for good. Nor does
one whose image could not be had.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from controller.kinds.meta import Condition, StoredObject
from controller.kinds.observed.observed import Container, HostFacts, State
from controller.kinds.planning.instance_record import REFUSED, SANDBOX, Instance
from controller.kinds.planning.plan import Shortage
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.kinds.quota import RESOURCES, Amount, Ceiling, StoredQuota, amount_of, of_pool
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.plan.common.altered import altered
from controller.plan.common.backoff import can_not_start
from controller.plan.common.backoff import held as held_up
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network.egress import NONE, Share, is_held_up, share
from controller.plan.sandbox import mounts
from controller.plan.sandbox.claim import WITHHELD
from controller.plan.sandbox.rest import rest
from controller.plan.sandbox.sandbox import decide
from controller.plan.sandbox.status import dated
from controller.policy.quota_ledger import HOST, Bound, bounds, judge, of_pools
from controller.policy.sandbox import volume_bytes

NO_LIMITS = Limits(0, 0, 0)
WAITS = "QuotaExceeded"
# Nothing of these can use a processor, memory or a pid. Of a state that is not known, or on its way, anything may.
_STOPPED = (State.CREATED, State.EXITED, State.DEAD)


@dataclass(frozen=True, slots=True)
class Claim:
    """What an object holds whatever the quotas say (`base`, and a seat), and what it needs for all that it wants.

    `beside` is the same of its egress container. `holds_up`: those after it wait for it, where it lacks room.
    """

    base: Limits
    whole: Limits
    seated: bool
    wants_seat: bool
    beside: Share = NONE
    holds_up: bool = True

    @property
    def asks(self) -> bool:
        """Whether it needs room that it does not have."""
        lacks = self.whole != self.base or self.beside.whole != self.beside.base
        return lacks or (self.wants_seat and not self.seated)

    def refused(self) -> "Claim":
        """What is left of it where there is no room: what is held."""
        return replace(self, whole=self.base, beside=replace(self.beside, whole=self.beside.base))


def claim(case: Case, decision: Decision, instance: Instance | None) -> Claim:
    """What this object reserves and asks for, were it given all. A look that tells nothing moves nothing."""
    held = instance.reserves if instance else NO_LIMITS
    containers = ((case.container,) if case.container else ()) + case.extra
    seated = (instance is not None and instance.role != REFUSED) or bool(containers)
    if case.blind or decision.reason == "Unreadable":
        return Claim(held, held, seated, False, share(case, True))
    failure = decision.memory.failure
    tried = held_up(failure, case.obj.generation, case.deleting) and can_not_start(failure)
    refused = not case.deleting and (case.rendered is None or (tried and is_held_up(decision)))
    if refused and all(each.state is State.CREATED for each in containers):
        return Claim(NO_LIMITS, NO_LIMITS, False, False, share(case, False))
    wanted = None if refused else _wanted(case, decision)
    used = _in_use(containers, wanted or held)
    kept = _each(min, wanted, held) if wanted else NO_LIMITS
    whole = _each(max, used, wanted or NO_LIMITS)
    shares = wanted.cpu_shares if wanted else 0
    base = altered(_each(max, used, kept), cpu_shares=shares)
    whole, base = _with_disk(case, whole, base, held, seated)
    if base.pids and not _made_as_asked(case):  # devices stay with what runs, whatever its spec asks for by now
        base, whole = (altered(each, gpus=max(each.gpus, held.gpus)) for each in (base, whole))
    seat = case.rendered is not None and not case.deleting
    around = share(case, wanted is not None)
    return Claim(base, altered(whole, cpu_shares=shares), seated, seat, around, holds_up=not tried)


def _made_as_asked(case: Case) -> bool:
    """Whether its container was made with the devices that its spec asks for."""
    container, rendered = case.container, case.rendered
    return container is not None and rendered is not None and container.template_hash == rendered.template_hash


def _wanted(case: Case, decision: Decision) -> Limits | None:
    """The limits it is to run with; None when it is not to run."""
    if case.rendered is None or case.spec is None or case.deleting or decision.finished:
        return None
    resting = rest(altered(case, memory=decision.memory))
    if decision.reason in WITHHELD or (resting is not None and not resting.half):
        return None
    return case.rendered.config.limits


def _with_disk(case: Case, whole: Limits, base: Limits, held: Limits, seated: bool) -> tuple[Limits, Limits]:
    """Disk goes with the seat, not with running: what is stopped keeps its files, and its volumes are allocated."""
    wanted = held.disk_bytes
    if case.rendered is not None and not case.deleting:
        wanted = case.rendered.config.limits.disk_bytes + volume_bytes(mounts.wanted(case, case.rendered))
    kept = min(wanted, held.disk_bytes) if seated else 0
    return altered(whole, disk_bytes=wanted), altered(base, disk_bytes=kept)


def _in_use(containers: Iterable[Container], otherwise: Limits) -> Limits:
    """What may be in use now. A limit that can't be read, or is lifted by hand, counts as the one it should have."""
    total = NO_LIMITS
    for each in containers:
        if each.state not in _STOPPED:
            found = each.limits or otherwise
            total = Limits(
                total.cpu_millicores + (found.cpu_millicores or otherwise.cpu_millicores),
                total.memory_bytes + (found.memory_bytes or otherwise.memory_bytes),
                total.pids + (found.pids or otherwise.pids),
            )
    return total


def _each(of: Callable[[int, int], int], one: Limits, other: Limits) -> Limits:
    return Limits(
        of(one.cpu_millicores, other.cpu_millicores),
        of(one.memory_bytes, other.memory_bytes),
        of(one.pids, other.pids),
        one.cpu_shares,
        of(one.disk_bytes, other.disk_bytes),
        of(one.gpus, other.gpus),
    )


class Room:
    """What is held in every namespace and on the host, what may be, and whom it is given to."""

    def __init__(
        self,
        instances: Iterable[Instance],
        quotas: Mapping[str, StoredQuota],
        facts: HostFacts,
        pools: Iterable[Pool] = (),
    ) -> None:
        kept = list(instances)
        self.bounds = bounds(quotas.values(), facts)
        self._of_pools = of_pools(pools)
        self._used = held(kept) | held_by_pools(kept, self._of_pools)
        self._first: dict[Bound, str] = {}  # who waits for room in it, before all others
        self._given: set[str] = set()
        # Where (a namespace, the host) somebody waits that warm members of pools below this priority give way to.
        self.crowded: dict[str, float] = {}
        self.shortages: list[Shortage] = []

    def used(self, namespace: str) -> Amount:
        """What is held in the namespace; "" is the host."""
        return self._used.get(namespace, Amount())

    def ask(self, case: Case, asked: Claim, pool: str = "") -> str:
        """Give all that is asked for, or say in words why there is no room for it. `pool` is whose it is (its uid)."""
        namespace, of = case.obj.namespace, of_pool(pool)
        whole = amount_of(asked.whole, 1) + amount_of(asked.beside.whole)
        base = amount_of(asked.base, int(asked.seated)) + amount_of(asked.beside.base)
        own = self.bounds.get(namespace, ()) if namespace != HOST else ()
        words, lacking, never = [], [], not asked.holds_up
        short: list[tuple[Bound, str]] = []
        for bound in (*self._of_pools.get(of, ()), *own, *self.bounds[HOST]):
            found = judge(bound, self.used(bound.namespace), whole, base)
            ahead = f"{self._first[bound]} is before it" if bound in self._first else ""
            if said := "; ".join(each for each in (*found.reasons, ahead) if each):
                words.append(f"{bound}: {said}")
            if not found.admitted:
                lacking.append(bound)
                never = never or found.never
                short += [(bound, each) for each in found.lacking]
        self._note(case, short, holds_up=not never)
        if words:
            for bound in () if never else lacking:
                self._first.setdefault(bound, _named(case))
                before = self.crowded.get(bound.namespace, -math.inf)
                self.crowded[bound.namespace] = max(before, _weight(case))
            return ", and ".join(words)
        for each in (namespace, HOST):
            self._used[each] = self.used(each) + whole - base
            self._given.add(each)
        if of in self._of_pools:
            self._used[of] = self.used(of) + amount_of(asked.whole) - amount_of(asked.base)
            self._given.add(of)
        return ""

    def _note(self, case: Case, short: Iterable[tuple[Bound, str]], *, holds_up: bool) -> None:
        for bound, resource in short if case.obj.kind == "Sandbox" else ():
            own = "namespace" if bound.namespace == case.obj.namespace else "pool"
            self.shortages.append(Shortage(case.obj.uid, own if bound.namespace else "host", resource, holds_up))

    def ceilings(self) -> tuple[Ceiling, ...]:
        """What was reckoned with where room was given: the store must not come to hold more."""
        return tuple(Ceiling(each, self.used(each)) for each in sorted(self._given))


def held(instances: Iterable[Instance]) -> dict[str, Amount]:
    """What instances hold, by namespace, and all of them on the host ("")."""
    sums: dict[str, list[int]] = {HOST: [0] * len(RESOURCES)}
    for each in instances:
        limits = each.reserves
        for total in (sums[HOST], sums.setdefault(each.namespace, [0] * len(RESOURCES))):
            total[0] += limits.cpu_millicores
            total[1] += limits.memory_bytes
            total[2] += limits.pids
            total[3] += each.role == SANDBOX  # a pool's members have no seat before they are claimed
            total[4] += limits.disk_bytes
            total[5] += limits.gpus
    return {namespace: Amount(*total) for namespace, total in sums.items()}


def held_by_pools(instances: Iterable[Instance], keys: Collection[str]) -> dict[str, Amount]:
    """What pools' members and the sandboxes that came of them hold, by `of_pool`."""
    found: dict[str, Amount] = {}
    for each in instances if keys else ():
        key = of_pool(each.memory.pool)
        if key in keys:
            found[key] = found.get(key, Amount()) + amount_of(each.reserves)
    return found


def _weight(case: Case) -> float:
    """How much it counts for against warm members: any sandbox more than any pool's priority."""
    priority = case.spec.priority if case.spec else 0
    return math.inf if case.obj.kind == "Sandbox" else priority


def larger(one: Limits, other: Limits) -> Limits:
    """The more of both, of each; the CPU shares are the second one's."""
    return replace(_each(max, one, other), cpu_shares=other.cpu_shares)


def lets_grow(snapshot: Snapshot, pool: Pool, member: Instance, reserves: Limits) -> bool:
    """Whether a member may become a sandbox's that reserves so much, by all quotas, as the snapshot has them."""
    whole, part = amount_of(reserves, 1), amount_of(member.reserves)
    found = {**bounds(snapshot.quotas.values(), snapshot.observed.facts), **of_pools([pool])}
    rows = list(snapshot.instances.values())
    used = held(rows) | held_by_pools(rows, found)
    concerned = (of_pool(pool.obj.uid), pool.obj.namespace, HOST)
    return all(
        judge(each, used.get(each.namespace, Amount()), whole, part).admitted
        for key in concerned
        for each in found.get(key, ())
    )


def is_behind(snapshot: Snapshot, obj: StoredObject, spec: SandboxSpec) -> bool:
    """Whether a new sandbox comes after one that waits for room: by its priority, for all of them are older."""
    for each in snapshot.shortages:
        other = snapshot.sandboxes.get(each.uid)
        if other is None or other.spec is None or other.spec.priority < spec.priority or not each.holds_up:
            continue
        if each.scope == "host" or (each.scope == "namespace" and other.obj.namespace == obj.namespace):
            return True
    return False


def turn_of(case: Case) -> tuple[bool, int, float, str, str, str]:
    """What the order of asking goes by: sandboxes before warm members, the highest priority, then the oldest."""
    obj = case.obj
    priority = case.spec.priority if case.spec else 0
    return obj.kind != "Sandbox", -priority, obj.created_at, obj.namespace, obj.name, obj.uid


def _named(case: Case) -> str:
    priority = case.spec.priority if case.spec else 0
    return f"{case.obj.ref} (priority {priority})" if priority else str(case.obj.ref)


def without_room(case: Case, asked: Claim, words: str, reason: str = WAITS) -> Decision:
    """The decision for one that did not get its room: it goes on with what it holds, or waits where that is nothing."""
    assert case.rendered is not None
    assert case.spec is not None
    config = case.rendered.config
    limits = replace(_each(min, config.limits, asked.base), cpu_shares=config.limits.cpu_shares)
    if limits.pids and limits.gpus < config.limits.gpus:
        return Decision(case.memory, deferred=words)  # it would have to be made anew, with devices that are not there
    if limits.cpu_millicores and limits.memory_bytes and limits.pids:
        within = replace(case.rendered, config=replace(mounts.as_bound(case, config), limits=limits))
        return replace(decide(replace(case, rendered=within)), deferred=words)
    # As one that is suspended: what is stopped stays so, and is kept in order.
    resting = decide(replace(case, spec=case.spec.model_copy(update={"run_state": "Suspended"})))
    # A pool's member has no status to remember by that it was told: its pool's Degraded condition tells.
    silent = _waits(case.obj, reason) or case.obj.kind != "Sandbox"
    events = () if silent else (case.event(reason, words, warning=True),)
    return replace(
        resting,
        reason=reason,
        message=words,
        events=(*resting.events, *events),
        scheduled=Condition("Scheduled", "False", reason, words),
    )


def _waits(obj: StoredObject, reason: str = WAITS) -> bool:
    """Whether its status says already that it waits for room."""
    found = obj.status.get("conditions", ())
    return any(each["type"] == "Scheduled" and each["reason"] == reason for each in found)


def scheduled(case: Case, decision: Decision, asked: Claim) -> Condition:
    """The Scheduled condition of one that has the room it wants, or of which that is not known."""
    if not asked.seated and case.blind:
        return Condition("Scheduled", "Unknown", decision.reason, decision.message)
    if not asked.seated and not asked.wants_seat:
        return Condition("Scheduled", "False", decision.reason or "NotAccepted", decision.message)
    if case.blind and _waits(case.obj):
        return Condition("Scheduled", "Unknown", decision.reason, decision.message)
    return Condition("Scheduled", "True", "Assigned", "to this host")


def statuses(room: Room, quotas: Mapping[str, StoredQuota], now: float) -> Iterator[tuple[StoredQuota, dict[str, Any]]]:
    """The status of every quota whose stored one says something else."""
    in_force = {bound.uid: bound for each in room.bounds.values() for bound in each}
    for uid, quota in quotas.items():
        bound = in_force.get(uid)
        if bound is not None:
            made = _status(quota, bound, room.used(bound.namespace), now)
            if made != quota.obj.status:
                yield quota, made


def _status(quota: StoredQuota, bound: Bound, used: Amount, now: float) -> dict[str, Any]:
    over = exceeded(bound, used)
    if bound.hard is None:
        found = Condition("Exceeded", "Unknown", "Unreadable", "this version of Paddock can't read its spec")
    elif over:
        found = Condition("Exceeded", "True", "HardLowered", f"{over}: nothing is stopped, nothing new is started")
    else:
        found = Condition("Exceeded", "False", "WithinHard")
    prior = next(iter(quota.obj.status.get("conditions", ())), None)
    return {
        "observedGeneration": quota.obj.generation,
        "hard": shown(bound),
        "used": {each.name: each.text(getattr(used, each.unit)) for each in RESOURCES},
        "conditions": [dated(found, prior, quota.obj.generation, now)],
    }


def shown(bound: Bound) -> dict[str, str]:
    """The limits of a quota in force as texts, without those that it does not have."""
    hard = {each: getattr(bound.hard, each.name, None) for each in RESOURCES}
    return {each.name: each.text(most) for each, most in hard.items() if most is not None}


def exceeded(bound: Bound, used: Amount) -> str:
    """Of what more is held than the quota allows, in words."""
    found = ((each, getattr(used, each.unit), getattr(bound.hard, each.name, None)) for each in RESOURCES)
    return ", ".join(
        f"{each.name} {each.text(now)} of {each.text(most)}"
        for each, now, most in found
        if most is not None and now > most
    )


@dataclass(frozen=True, slots=True)
class Movement:
    """What comes of a quota: for each thing that it bounds (name, used before, used after, most), as texts."""

    quota: str
    namespace: str
    resources: tuple[tuple[str, str, str, str], ...]


def movements(before: Snapshot, after: Snapshot) -> Iterator[Movement]:
    """The quotas of which more or less is held afterwards, with the limits that hold then."""
    was, will = held(before.instances.values()), held(after.instances.values())
    for namespace, each in sorted(bounds(after.quotas.values(), after.observed.facts).items()):
        old, new = was.get(namespace, Amount()), will.get(namespace, Amount())
        for bound in each if old != new else ():
            most = shown(bound)
            told = [(one.name, one.text, one.unit) for one in RESOURCES if one.name in most]
            lines = ((name, text(getattr(old, at)), text(getattr(new, at)), most[name]) for name, text, at in told)
            yield Movement(str(bound), namespace, tuple(lines))
