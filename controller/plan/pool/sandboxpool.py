"""SandboxPool: members to add and to retire, and the pool's status and figures. Claims are in claim_candidates.py.

A member is planned as a sandbox that nobody has asked for yet: `as_sandbox` gives it that form. A claim makes it one:
the new Sandbox takes over the member's uid, and with it container, record and name.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.kinds.common.labels import container_name
from controller.kinds.common.tracked_map import tracked
from controller.kinds.host import NAME
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.instance_record import RETIRED, WARM, Instance
from controller.kinds.planning.instance_state import ClaimRecord, ContainerRecord, InstanceState
from controller.kinds.planning.plan import Claimable, Retirement
from controller.kinds.planning.snapshot import FleetView, Pool, Sandbox, Snapshot
from controller.kinds.quota import Amount, replicas_scope
from controller.kinds.sandboxpool import whole_key, whole_uid
from controller.plan.base.backoff import lacks_image, waits
from controller.plan.base.instance_index import index_of
from controller.plan.base.memo import JudgedMember
from controller.plan.base.reasons import SHARED
from controller.plan.base.status_json import dated
from controller.plan.sandbox import drift, probes
from controller.policy.sandbox import NO_LIMITS, Rendered
from controller.policy.sandboxpool import shares_volumes

WAITING_SANDBOXES_FIELD = (
    "waitingSandboxes"  # in the status of a part: those here that wait for a place in the whole pool
)
_FULL = "its pool is at its maxReplicas over all hosts"


@dataclass(frozen=True, slots=True)
class Member:
    """State of a warm member. `stale`: too old, or not as the template is now. `trouble`: why it fails.

    `lacks_image`: for want of its image.
    """

    instance: Instance
    ready: bool
    stale: bool
    trouble: str = ""
    lacks_image: bool = False


@dataclass(frozen=True, slots=True)
class Turnover:
    """Changes of a pool."""

    new: tuple[Instance, ...]
    """Members to add."""
    to_retire: tuple[Instance, ...]
    """Members to remove, with the role RETIRED."""
    status: Mapping[str, Any]
    """Its new status."""
    next_expiry: float | None
    """Time at which the next member is too old, Unix seconds; None: none will be, or one is now."""


def without_used(snapshot: Snapshot, judged: Mapping[str, JudgedMember]) -> Snapshot:
    """Return the snapshot with those members retired whose container shows a claim: another name, a mount, or a use.

    A store restored from a backup does not know of the claim, and must never hand such a container out again. What was
    `judged` as it is now shows none.
    """
    pools = snapshot.desired.pools
    if not pools:
        return snapshot
    instances, containers = snapshot.instances, snapshot.observed.containers
    used_members = {}
    for uid in index_of(instances).all_members():
        instance, former = instances[uid], judged.get(uid)
        pool = pools.get(instance.parent_uid)
        if (
            former is not None
            and former.instance is instance
            and former.containers is containers.get(uid)
            and pool is not None
            and former.sandbox.template is pool.template
        ):
            continue
        if instance.role == WARM and is_used(instance, containers.get(uid, ()), pool):
            used_members[uid] = replace(instance, role=RETIRED)
    return replace(snapshot, instances=tracked(instances).updated(used_members)) if used_members else snapshot


def is_used(member: Instance, containers: Iterable[Container], pool: Pool | None) -> bool:
    """Return True if one of these is the member's container, used, under another name, or with an owner's mount."""
    is_prepared = pool is not None and pool.template is not None and pool.template.restore_from is not None
    own_kinds = ("tmpfs", "memory") if is_prepared else ("tmpfs",)
    return any(
        container.id == member.state.container.id
        and (
            container.is_used
            or container.name != member.name
            or any(mount.kind not in own_kinds for mount in container.bound)
        )
        for container in containers
    )


def is_ready(instance: Instance, container: Container | None, rendered: Rendered | None) -> bool:
    """Return True if a member may be claimed, as far as its own state goes."""
    return (
        instance.role == WARM
        and instance.state.backoff.failure is None
        and not instance.state.security.failed_attestation.differences
        and container is not None
        and rendered is not None
        and (container.state is State.RUNNING or is_hibernated(instance, container))
        and container.limits is not None
        and not container.unrecorded
        and probes.are_passed(rendered.probes, instance.state)
    )


def is_hibernated(instance: Instance, container: Container | None) -> bool:
    """Return True if a member's container is frozen with its memory in swap: a claim wakes it."""
    hibernation = instance.state.memory.hibernation
    if container is None or hibernation is None or container.state is not State.PAUSED:
        return False
    return hibernation.phase == "Hibernated" and hibernation.run == container.run


def member_of(
    pool: Pool,
    instance: Instance,
    container: Container | None,
    rendered: Rendered | None,
    now: float,
    *,
    hibernates: bool = False,
) -> Member:
    """Return the state of a member. `rendered` is its configuration as the template has it now.

    Where the host `hibernates`, a member that is to be hibernated is ready once it is.
    """
    aged = pool.spec is not None and not waits(now, instance.created_at + pool.spec.max_age_seconds, float("inf"))
    is_outdated = container is not None and (
        container.unrecorded  # it may be a claimed one of a restored store
        or (rendered is not None and drift.is_outdated(container, rendered))
    )
    failure, end = instance.state.backoff.failure, instance.state.runs.last_end
    insecure = instance.state.security.failed_attestation.differences
    trouble = ""
    if failure is not None:
        trouble = f"{failure.reason}: {failure.message}"
    elif insecure:
        trouble = f"NotSecured: {insecure}"
    elif instance.state.runs.crashes and end is not None:
        trouble = f"{end.reason}: exit code {end.exit_code}"
    elif container is not None and container.state is State.RUNNING and container.limits is None:
        trouble = "LimitsUnread: its limits can't be read from its cgroup, so it is not handed out"
    ready = is_ready(instance, container, rendered) and not aged and not is_outdated
    if hibernates and pool.spec is not None and pool.spec.warm_state == "Hibernated":
        ready = ready and is_hibernated(instance, container)
    return Member(
        instance,
        ready=ready,
        stale=aged or is_outdated,
        trouble=trouble,
        lacks_image=failure is not None and lacks_image(failure),
    )


@dataclass(frozen=True, slots=True)
class PoolCount:
    """Members and sandboxes of one pool on this host, beside its warm members."""

    being_removed: int
    """Retired members whose containers are not gone yet."""
    claimed: int
    """Sandboxes that came from it."""
    demand: int
    """`claimed`, and the sandboxes that are to come from it now, or wait for it: warm members give way to them."""
    places_left: int | None = None
    """Members that the maximum of the whole pool still leaves, over all hosts; None: this is no part of one."""


def plan_turnover(
    pool: Pool,
    members: Sequence[Member],
    count: PoolCount,
    *,
    taken_uids: Collection[str],
    now: float,
    pressure_message: str = "",
    missing_image: str = "",
    host: str = NAME,
) -> Turnover:
    """Return the changes of one pool.

    `taken_uids` are those of all instances: no new member gets one. With a `pressure_message` of the host no member is
    kept. `missing_image` is the reason why the pool's image is missing. `host` is the name of this host.
    """
    warm_count = 0 if pressure_message or shares_volumes(pool.template) else _warm_count(pool, count.demand)
    surge = _surge(pool, members, count, warm_count)
    if count.places_left is not None:
        # A replacement needs room beside the member it replaces.
        surge = min(surge, max(0, count.places_left))
    retiring = _to_retire(members, warm_count, surge)
    new = _to_add(pool, members, count, warm_count)
    if count.places_left is not None:
        new = min(new, max(0, count.places_left))
    if pool.template is None or pool.obj.deleted_at is not None:
        new = 0
    if pool.obj.deleted_at is not None:
        retiring = list(members)
    fresh = tuple(_new_member(pool, uid, now, host) for uid in _uids(pool, now, taken_uids, new))
    retired = tuple(replace(member.instance, role=RETIRED) for member in retiring)
    remaining = [member for member in members if member not in retiring]
    births = [member.instance.created_at for member in remaining]
    next_expiry = None
    if births and pool.spec is not None and not any(member.stale for member in remaining):
        next_expiry = min(births) + pool.spec.max_age_seconds
    full = _FULL if count.places_left is not None and count.places_left <= len(fresh) else ""
    status = _status(
        pool,
        remaining,
        len(fresh),
        claimed=count.claimed,
        warm_count=warm_count,
        now=now,
        pressure_message=pressure_message,
        missing_image=missing_image,
        full=full,
    )
    return Turnover(new=fresh, to_retire=retired, status=status, next_expiry=next_expiry)


def _warm_count(pool: Pool, demand: int) -> int:
    if pool.spec is None:
        return 0
    room = pool.spec.warm_replicas if pool.spec.max_replicas is None else pool.spec.max_replicas - demand
    return max(0, min(pool.spec.warm_replicas, room))


def _surge(pool: Pool, members: Sequence[Member], count: PoolCount, warm_count: int) -> int:
    """Return 1 while stale members are replaced, if the pool's maximum allows one member more."""
    if pool.spec is None or not any(member.stale for member in members):
        return 0
    most = pool.spec.max_replicas
    return 1 if most is None or warm_count + count.demand + count.being_removed < most else 0


def _to_add(pool: Pool, members: Sequence[Member], count: PoolCount, warm_count: int) -> int:
    """Return how many members to add: up to the warm target, and within the pool's maximum."""
    if pool.spec is None:
        return 0
    current = sum(not member.stale for member in members)
    most = warm_count + _surge(pool, members, count, warm_count)
    if pool.spec.max_replicas is not None:
        most = min(most, pool.spec.max_replicas - count.demand - count.being_removed)
    return max(0, min(warm_count - current, most - len(members)))


def _to_retire(members: Sequence[Member], warm_count: int, surge: int) -> list[Member]:
    """Return the members to retire, unclaimable ones first. A stale one stays until a current one is ready."""
    stale = [member for member in members if member.stale]
    current = [member for member in members if not member.stale]
    ready = sum(member.ready for member in current)
    spare = max(0, ready + len(stale) - warm_count)
    if stale and not surge and len(current) < warm_count and not any(not member.ready for member in current):
        spare = max(1, spare)  # no capacity to start another one first
    replaced = sorted(stale, key=lambda member: member.instance.created_at)[:spare]
    excess = max(0, len(current) - warm_count)
    order = sorted(current, key=lambda member: (member.ready, not member.trouble, -member.instance.created_at))
    return replaced + order[:excess]


def _uids(pool: Pool, now: float, taken_uids: Collection[str], count: int) -> Iterator[str]:
    """Yield unused uids, derived from the pool's uid and the time: nothing here may be random."""
    serial, yielded = 0, 0
    while yielded < count:
        digits = hashlib.sha256(f"{pool.obj.uid}/{now!r}/{serial}".encode()).hexdigest()
        uid = f"{digits[:8]}-{digits[8:12]}-8{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}"  # RFC 9562, version 8
        serial += 1
        if uid not in taken_uids:
            yielded += 1
            yield uid


def _new_member(pool: Pool, uid: str, now: float, host: str) -> Instance:
    """Return the record of a new warm member, which has no container yet."""
    name = f"{pool.obj.name}-{uid[:5]}"
    return Instance(
        name=container_name(name, uid),
        parent_uid=pool.obj.uid,
        parent_kind=pool.obj.kind,
        namespace=pool.obj.namespace,
        parent_name=pool.obj.name,
        role=WARM,
        reserves=NO_LIMITS,
        created_at=now,
        state=InstanceState(ContainerRecord(hostname=name), claim=ClaimRecord(pool=whole_uid(pool.obj))),
        member_uid=uid,
        host=host,
    )


def _status(
    pool: Pool,
    members: Sequence[Member],
    coming: int,
    *,
    claimed: int,
    warm_count: int,
    now: float,
    pressure_message: str,
    missing_image: str,
    full: str,
) -> Mapping[str, Any]:
    """Return the status of a pool of these members and `coming` new ones; unchanged conditions keep their times."""
    ready = sum(member.ready for member in members)
    prior = {condition["type"]: condition for condition in pool.obj.status.get("conditions", ())}
    generation = pool.obj.generation
    shown_pressure = pressure_message if _warm_count(pool, 0) else ""
    conditions = _conditions(
        pool,
        members,
        ready,
        warm_count=warm_count,
        pressure_message=shown_pressure,
        missing_image=missing_image,
        full=full,
    )
    return {
        "observedGeneration": generation,
        "conditions": [dated(condition, prior.get(condition.type), generation, now) for condition in conditions],
        "replicas": len(members) + coming,
        "readyReplicas": ready,
        "outdatedReplicas": sum(member.stale for member in members),
        "claimedReplicas": claimed,
    }


def _conditions(
    pool: Pool,
    members: Sequence[Member],
    ready: int,
    *,
    warm_count: int,
    pressure_message: str,
    missing_image: str,
    full: str,
) -> Iterator[Condition]:
    """Yield Ready, Accepted and Degraded; the worst cause of each is the one that is said."""
    trouble = next(
        (f"{member.instance.state.container.hostname}: {member.trouble}" for member in members if member.trouble), ""
    )
    if pool.broken or pool.template is None:
        name = pool.spec.template_ref.name if pool.spec else ""
        place = f"in namespace `{pool.obj.namespace}` (or it is being deleted, or can't be read)"
        message = pool.broken or f"there is no SandboxTemplate `{name}` {place}; apply it"
        yield Condition("Ready", "False", "Refused", message)
        yield Condition("Accepted", "False", "Refused", message)
        yield Condition("Degraded", "True", "Refused", message)
        return
    if message := shares_volumes(pool.template):
        yield Condition("Ready", "False", SHARED, message)
        yield Condition("Accepted", "False", SHARED, message)
        yield Condition("Degraded", "True", SHARED, message)
        return
    if pressure_message:
        yield Condition("Ready", "False", "HostPressure", f"{pressure_message}: no member is kept")
    elif ready >= warm_count:
        yield Condition("Ready", "True", "Filled", f"{ready} of {warm_count} members are ready")
    else:
        message = "; ".join(filter(None, (f"{ready} of {warm_count} members are ready", trouble, full)))
        yield Condition("Ready", "False", "Filling", message)
    yield Condition("Accepted", "True", "Admitted")
    if trouble and any(member.lacks_image for member in members):
        yield Condition("Degraded", "True", "ImagePullFailed", trouble)
    elif trouble:
        yield Condition("Degraded", "True", "MembersFail", trouble)
    elif missing_image:
        yield Condition("Degraded", "True", "ImagePullFailed", missing_image)
    else:
        yield Condition("Degraded", "False", "AsExpected")


def sharing(pools: Iterable[Pool]) -> str:
    """Return the message why none of these pools, all of one template, may provide a sandbox; "" if they may."""
    for pool in pools:
        if pool.obj.deleted_at is None and (message := shares_volumes(pool.template)):
            name = pool.spec.template_ref.name if pool.spec else ""
            return f"pool `{pool.obj.name}` starts nothing: SandboxTemplate `{name}`: {message}"
    return ""


def place(snapshot: Snapshot, sandbox: Sandbox, granted: Mapping[str, int]) -> tuple[str, str]:
    """Return (uid, "") of the whole pool that a sandbox with poolPolicy Require may start from now.

    Else (the uid of the pool it waits for or "", the message). `granted` are the places given in this pass, by pool.
    """
    spec = sandbox.spec
    if spec is None or spec.template_ref is None:
        return "", "poolPolicy is Require, and it names no SandboxTemplate"
    full: tuple[str, str] | None = None
    for _, pool in sorted(snapshot.desired.pools.items()):
        is_match = pool.obj.namespace == sandbox.obj.namespace and pool.obj.deleted_at is None
        if pool.spec is None or not is_match or pool.spec.template_ref != spec.template_ref:
            continue
        uid, name = whole_key(pool.obj)
        most = pool.spec.max_replicas
        if most is None or replicas(snapshot.fleet, snapshot.instances, uid) + granted.get(uid, 0) < most:
            return uid, ""
        full = full or (uid, f"pool `{name}` is at its maxReplicas of {most}")
    if full is not None:
        return full
    return "", f"poolPolicy is Require, and there is no SandboxPool of template `{spec.template_ref.name}`; apply one"


def replicas(fleet: FleetView, instances: Mapping[str, Instance], uid: str) -> int:
    """Return the number of warm, leaving and claimed members of a whole pool over all hosts, as far as a bound asks."""
    elsewhere = fleet.pools_elsewhere.get(replicas_scope(uid), Amount())
    return index_of(instances).counts_by_whole_pool.get(uid, 0) + elsewhere.sandboxes


def claimable_members(pool: Pool, members: Iterable[Member]) -> Iterator[Claimable]:
    """Yield the members that may be claimed."""
    ref = pool.obj.ref
    for member in members:
        if member.ready:
            yield Claimable(uid=member.instance.uid, pool=ref, created_at=member.instance.created_at)


def retirements(
    pool: Pool, members: Sequence[Member], retired: Iterable[Instance], *, needs_room: bool, now: float
) -> Iterator[Retirement]:
    """Yield the reason of each of these retirements."""
    member_by_uid = {member.instance.uid: member for member in members}
    for instance in retired:
        yield Retirement(
            uid=instance.uid,
            pool=pool.obj.ref,
            reason=_retirement_reason(pool, member_by_uid[instance.uid], needs_room=needs_room, now=now),
        )


def _retirement_reason(pool: Pool, member: Member, *, needs_room: bool, now: float) -> str:
    """Return the reason of a retirement, as the metric's label has it."""
    if pool.spec is not None and not waits(now, member.instance.created_at + pool.spec.max_age_seconds, float("inf")):
        return "age"
    if member.stale:
        return "outdated"
    if needs_room:
        return "room"
    return "unhealthy" if member.trouble else "scale_down"
