"""Pools over hosts: the scheduler chooses a host for each warm sandbox of a pool that names none. Pure.

Such a pool has a slot for each of its `warmReplicas`: a placement that is never pinned, so that the scheduler moves it
off a host that is lost, drained or unfit. The slots on a host are the `warmReplicas` of the pool's part there: a
SandboxPool with `host`, which the first one owns, and which that host's daemon fills.

The bounds of the pool are in its parts' specs, too, and hold for all of them together: their members and the sandboxes
claimed from them count for the pool (`whole_uid`). There are as many slots as `maxReplicas` leaves beside the claimed,
and the sandboxes that wait for a place in it.

Without parts, a swarm's sandboxes would start warm only where a person had made a pool for each host.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from controller.kinds.meta import Condition, ObjectRef, StoredObject, stored_condition
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.planning.snapshot import Pool, Sandbox
from controller.kinds.quota import RESOURCES, Amount
from controller.plan.base.status_json import dated
from controller.plan.pool.sandboxpool import WAITING_SANDBOXES_FIELD
from controller.ports.scheduler import Pending, Placed, PlacedRecord

_LETTERS, _DIGITS = 52, 8  # of a name, and of the hash in one that was too long
_COUNTS = ("replicas", "readyReplicas", "outdatedReplicas", "claimedReplicas")


@dataclass(frozen=True, slots=True)
class PutPart:
    """Make a pool's part on a host, or give it another spec. `stored_part` is None if there is none."""

    pool: StoredObject
    name: str
    spec: Mapping[str, Any]
    stored_part: ObjectRef | None


def spread_pools(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Return the pools whose warm sandboxes the scheduler spreads, in the order in which they are served."""
    spread = (
        pool
        for pool in pools
        if host_of(pool.obj, UNBOUND) == UNBOUND and pool.obj.deleted_at is None and pool.spec is not None
    )
    return tuple(sorted(spread, key=lambda pool: (-(pool.spec.priority if pool.spec else 0), pool.obj.created_at)))


def slot_uids(pool: Pool, parts: Sequence[Pool], records: Mapping[str, PlacedRecord]) -> tuple[str, ...]:
    """Return the uids of a pool's slots. Where its maximum leaves fewer, those without a warm sandbox are given up."""
    uids = [f"{pool.obj.uid}-{number}" for number in range(pool.spec.warm_replicas if pool.spec else 0)]
    room = warm_target(pool, parts)
    if room == len(uids):
        return tuple(uids)
    members_left = Counter(
        {host_of(pool_part.obj, UNBOUND): int(pool_part.obj.status.get("replicas", 0)) for pool_part in parts}
    )
    filled_slots: list[str] = []
    placed_slots: list[str] = []
    unplaced_slots: list[str] = []
    # Kept are first those whose host has a warm member for them, then those that have a host.
    for uid, host in ((uid, host_of_slot(records.get(uid))) for uid in uids):
        members_left[host] -= 1
        (unplaced_slots if not host else filled_slots if members_left[host] >= 0 else placed_slots).append(uid)
    return (*filled_slots, *placed_slots, *unplaced_slots)[:room]


def warm_target(pool: Pool, parts: Iterable[Pool]) -> int:
    """Return the number of warm members that a pool is to have, beside the claimed and the waiting sandboxes."""
    if pool.spec is None or pool.spec.max_replicas is None:
        return pool.spec.warm_replicas if pool.spec else 0
    in_use = sum(
        int(pool_part.obj.status.get(name, 0))
        for pool_part in parts
        for name in ("claimedReplicas", WAITING_SANDBOXES_FIELD)
    )
    return min(pool.spec.warm_replicas, max(0, pool.spec.max_replicas - in_use))


# Hosts by namespace and template.
RequiredHosts = Mapping[tuple[str, str], Collection[str]]


def required_hosts(sandboxes: Iterable[Sandbox]) -> RequiredHosts:
    """Return the hosts of sandboxes with poolPolicy Require: the pool of their template needs a part there."""
    hosts: dict[tuple[str, str], set[str]] = {}
    for sandbox in sandboxes:
        spec, host = sandbox.spec, host_of(sandbox.obj, UNBOUND)
        if spec is not None and spec.pool_policy == "Require" and spec.template_ref is not None and host != UNBOUND:
            hosts.setdefault((sandbox.obj.namespace, spec.template_ref.name), set()).add(host)
    return hosts


def put_parts(
    pool: Pool,
    pools: Iterable[Pool],
    records: Mapping[str, PlacedRecord],
    required: RequiredHosts = MappingProxyType({}),
) -> Iterator[PutPart]:
    """Yield the parts of a pool that are not as its slots are placed now. `pools` are all that are stored."""
    parts = parts_of(pool, pools)
    shares = Counter(host for uid in slot_uids(pool, parts, records) if (host := host_of_slot(records.get(uid))))
    part_by_host = {host_of(pool_part.obj, UNBOUND): pool_part.obj for pool_part in parts}
    template = pool.spec.template_ref.name if pool.spec else ""
    for host in sorted({*shares, *part_by_host, *required.get((pool.obj.namespace, template), ())}):
        stored = part_by_host.get(host)
        if stored is not None and stored.deleted_at is not None:
            continue
        spec = {**pool.obj.spec, "host": host, "warmReplicas": shares[host]}
        if stored is None or dict(stored.spec) != spec:
            yield PutPart(pool.obj, part_name(pool.obj.name, host), spec, stored.ref if stored is not None else None)


def parts_of(pool: Pool, pools: Iterable[Pool]) -> list[Pool]:
    """Return the stored parts of a pool."""
    uid = pool.obj.uid
    return [stored for stored in pools if any(owner.get("uid") == uid for owner in stored.obj.owner_references)]


def hosts_without_image(pool: Pool, pools: Iterable[Pool]) -> frozenset[str]:
    """Return the hosts whose daemon says that it can't get the image of the pool's members."""
    return frozenset(
        host_of(stored.obj, UNBOUND)
        for stored in parts_of(pool, pools)
        if stored_condition(stored.obj, "Degraded").get("reason") == "ImagePullFailed"
    )


def part_name(pool: str, host: str) -> str:
    """Return the name of a pool's part on a host."""
    name = f"{pool}-{host}"
    if len(name) <= _LETTERS:
        return name
    return f"{name[: _LETTERS - _DIGITS - 1].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"


def spread_status(
    pool: Pool,
    parts: Sequence[Pool],
    records: Mapping[str, PlacedRecord],
    refusal: str,
    usage: Amount,
    now: float,
    lacking: str = "",
) -> dict[str, Any]:
    """Return the status of a pool: the sums of its parts, and what its slots wait for.

    `refusal` is why a part could not be made, "" if all could. `lacking` is what a quota lacks for more. `usage` is
    what its members and claimed ones reserve.
    """
    prior = {condition["type"]: condition for condition in pool.obj.status.get("conditions", ())}
    counts = {name: sum(int(stored.obj.status.get(name, 0)) for stored in parts) for name in _COUNTS}
    generation = pool.obj.generation
    conditions = [
        _ready_condition(pool, parts, counts, records, refusal or lacking),
        Condition("Accepted", "True", "Admitted"),
        _degraded_condition(parts, refusal),
    ]
    return {
        "observedGeneration": generation,
        "conditions": [dated(condition, prior.get(condition.type), generation, now) for condition in conditions],
        **counts,
        **_used_status(pool, usage),
    }


def _used_status(pool: Pool, usage: Amount) -> dict[str, Any]:
    """Return what is used of each resource that the pool's quota bounds."""
    hard = pool.spec.quota.hard if pool.spec and pool.spec.quota is not None else None
    bounded = [resource for resource in RESOURCES if hard is not None and getattr(hard, resource.name) is not None]
    return (
        {"used": {resource.name: resource.text(getattr(usage, resource.unit)) for resource in bounded}}
        if bounded
        else {}
    )


def _ready_condition(
    pool: Pool, parts: Sequence[Pool], counts: Mapping[str, int], records: Mapping[str, PlacedRecord], lacking: str
) -> Condition:
    """Return the condition Ready of a pool over hosts, and what it waits for."""
    ready, desired = counts["readyReplicas"], warm_target(pool, parts)
    message = f"{ready} of {desired} members are ready"
    most = pool.spec.max_replicas if pool.spec else None
    warm, claimed = counts["replicas"], counts["claimedReplicas"]
    # People see why there are no more.
    if most is not None and warm + claimed >= most:
        queued = sum(int(stored.obj.status.get(WAITING_SANDBOXES_FIELD, 0)) for stored in parts)
        message = f"{message}; maxReplicas {most} is reached: {warm} warm, {claimed} claimed"
        message += f", {queued} waiting" if queued else ""
    if ready >= desired:
        return Condition("Ready", "True", "Filled", message)
    slots = [records.get(uid) for uid in slot_uids(pool, parts, records)]
    waiting = [slot.state.message for slot in slots if slot is not None and isinstance(slot.state, Pending)]
    why = lacking or (f"{len(waiting)} without a host: {waiting[0]}" if waiting else "")
    return Condition("Ready", "False", "Filling", f"{message}; {why}" if why else message)


def _degraded_condition(parts: Sequence[Pool], refusal: str) -> Condition:
    """Return the condition Degraded of a pool over hosts: that of its first part with one."""
    if refusal:
        return Condition("Degraded", "True", "Refused", refusal)
    for stored in parts:
        condition = stored_condition(stored.obj, "Degraded")
        if condition.get("status") == "True":
            return Condition(
                "Degraded", "True", condition["reason"], f"{stored.obj.name}: {condition.get('message', '')}"
            )
    return Condition("Degraded", "False", "AsExpected")


def host_of_slot(record: PlacedRecord | None) -> str:
    """Return the host of a placed slot; "" if it has none."""
    return record.state.host if record is not None and isinstance(record.state, Placed) else UNBOUND
