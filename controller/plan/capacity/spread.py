"""Pools over hosts: the scheduler chooses a host for each warm sandbox of a pool that names none. Pure.

Such a pool has a slot for each of its `warmReplicas`: a placement that is never pinned, so that the scheduler moves it
off a host that is lost, drained or unfit. The slots on a host are the `warmReplicas` of the pool's part there: a
SandboxPool with `host`, which the first one owns, and which that host's daemon fills.

The bounds of the pool are in its parts' specs, too, and hold for all of them together: their members and the sandboxes
claimed from them count for the pool (`whole_uid`). There are as many slots as `maxReplicas` leaves beside the claimed,
and the sandboxes that wait for a place in it.
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
from controller.plan.common.status_json import dated
from controller.plan.pool.sandboxpool import WAITING
from controller.ports.scheduler import Pending, Placed, PlacedRecord

_LETTERS, _DIGITS = 52, 8  # of a name, and of the hash in one that was too long
_COUNTS = ("replicas", "readyReplicas", "outdatedReplicas", "claimedReplicas")


@dataclass(frozen=True, slots=True)
class PutPart:
    """Make a pool's part on a host, or give it another spec. `known` is the stored one, None if there is none."""

    pool: StoredObject
    name: str
    spec: Mapping[str, Any]
    known: ObjectRef | None


def spread_pools(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Return the pools whose warm sandboxes the scheduler spreads, in the order in which they are served."""
    found = (
        each
        for each in pools
        if host_of(each.obj, UNBOUND) == UNBOUND and each.obj.deleted_at is None and each.spec is not None
    )
    return tuple(sorted(found, key=lambda each: (-(each.spec.priority if each.spec else 0), each.obj.created_at)))


def slot_uids(pool: Pool, parts: Sequence[Pool], records: Mapping[str, PlacedRecord]) -> tuple[str, ...]:
    """Return the uids of a pool's slots. Where its maximum leaves fewer, those without a warm sandbox are given up."""
    uids = [f"{pool.obj.uid}-{at}" for at in range(pool.spec.warm_replicas if pool.spec else 0)]
    left = warm_of(pool, parts)
    if left == len(uids):
        return tuple(uids)
    filled = Counter({host_of(each.obj, UNBOUND): int(each.obj.status.get("replicas", 0)) for each in parts})
    with_one: list[str] = []
    placed: list[str] = []
    others: list[str] = []
    for uid, host in ((uid, host_of_slot(records.get(uid))) for uid in uids):
        filled[host] -= 1
        (others if not host else with_one if filled[host] >= 0 else placed).append(uid)
    return (*with_one, *placed, *others)[:left]


def warm_of(pool: Pool, parts: Iterable[Pool]) -> int:
    """Return the number of warm members that a pool is to have, beside the claimed and the waiting sandboxes."""
    if pool.spec is None or pool.spec.max_replicas is None:
        return pool.spec.warm_replicas if pool.spec else 0
    taken = sum(int(each.obj.status.get(name, 0)) for each in parts for name in ("claimedReplicas", WAITING))
    return min(pool.spec.warm_replicas, max(0, pool.spec.max_replicas - taken))


Asking = Mapping[tuple[str, str], Collection[str]]


def asking(sandboxes: Iterable[Sandbox]) -> Asking:
    """Return the hosts of sandboxes that start from a pool alone, by namespace and template: they need a part there."""
    found: dict[tuple[str, str], set[str]] = {}
    for each in sandboxes:
        spec, host = each.spec, host_of(each.obj, UNBOUND)
        if spec is not None and spec.pool_policy == "Require" and spec.template_ref is not None and host != UNBOUND:
            found.setdefault((each.obj.namespace, spec.template_ref.name), set()).add(host)
    return found


def put_parts(
    pool: Pool, pools: Iterable[Pool], records: Mapping[str, PlacedRecord], asked: Asking = MappingProxyType({})
) -> Iterator[PutPart]:
    """Yield the parts of a pool that are not as its slots are placed now. `pools` are all that are stored."""
    parts = parts_of(pool, pools)
    shares = Counter(host for uid in slot_uids(pool, parts, records) if (host := host_of_slot(records.get(uid))))
    known = {host_of(each.obj, UNBOUND): each.obj for each in parts}
    template = pool.spec.template_ref.name if pool.spec else ""
    for host in sorted({*shares, *known, *asked.get((pool.obj.namespace, template), ())}):
        part = known.get(host)
        if part is not None and part.deleted_at is not None:
            continue
        spec = {**pool.obj.spec, "host": host, "warmReplicas": shares[host]}
        if part is None or dict(part.spec) != spec:
            yield PutPart(pool.obj, part_name(pool.obj.name, host), spec, part.ref if part is not None else None)


def parts_of(pool: Pool, pools: Iterable[Pool]) -> list[Pool]:
    """Return the stored parts of a pool."""
    uid = pool.obj.uid
    return [each for each in pools if any(owner.get("uid") == uid for owner in each.obj.owner_references)]


def hosts_without_image(pool: Pool, pools: Iterable[Pool]) -> frozenset[str]:
    """Return the hosts whose daemon says that it can't get the image of the pool's members."""
    return frozenset(
        host_of(part.obj, UNBOUND)
        for part in parts_of(pool, pools)
        if stored_condition(part.obj, "Degraded").get("reason") == "ImagePullFailed"
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
    refused: str,
    used: Amount,
    now: float,
    lacking: str = "",
) -> dict[str, Any]:
    """Return the status of a pool: the sums of its parts, and what its slots wait for.

    `refused` is why a part could not be made, "" if all could. `lacking` is what a quota lacks for more. `used` is
    what its members and claimed ones reserve.
    """
    prior = {each["type"]: each for each in pool.obj.status.get("conditions", ())}
    counts = {name: sum(int(each.obj.status.get(name, 0)) for each in parts) for name in _COUNTS}
    generation = pool.obj.generation
    made = [
        _ready(pool, parts, counts, records, refused or lacking),
        Condition("Accepted", "True", "Admitted"),
        _degraded(parts, refused),
    ]
    return {
        "observedGeneration": generation,
        "conditions": [dated(each, prior.get(each.type), generation, now) for each in made],
        **counts,
        **_used(pool, used),
    }


def _used(pool: Pool, used: Amount) -> dict[str, Any]:
    """Return what is used of each resource that the pool's quota bounds."""
    hard = pool.spec.quota.hard if pool.spec and pool.spec.quota is not None else None
    bounded = [each for each in RESOURCES if hard is not None and getattr(hard, each.name) is not None]
    return {"used": {each.name: each.text(getattr(used, each.unit)) for each in bounded}} if bounded else {}


def _ready(
    pool: Pool, parts: Sequence[Pool], counts: Mapping[str, int], records: Mapping[str, PlacedRecord], lacking: str
) -> Condition:
    ready, wanted = counts["readyReplicas"], warm_of(pool, parts)
    words = f"{ready} of {wanted} members are ready"
    most = pool.spec.max_replicas if pool.spec else None
    there, claimed = counts["replicas"], counts["claimedReplicas"]
    if most is not None and there + claimed >= most:
        queued = sum(int(each.obj.status.get(WAITING, 0)) for each in parts)
        words = f"{words}; maxReplicas {most} is reached: {there} warm, {claimed} claimed"
        words += f", {queued} waiting" if queued else ""
    if ready >= wanted:
        return Condition("Ready", "True", "Filled", words)
    slots = [records.get(uid) for uid in slot_uids(pool, parts, records)]
    waiting = [each.state.message for each in slots if each is not None and isinstance(each.state, Pending)]
    why = lacking or (f"{len(waiting)} without a host: {waiting[0]}" if waiting else "")
    return Condition("Ready", "False", "Filling", f"{words}; {why}" if why else words)


def _degraded(parts: Sequence[Pool], refused: str) -> Condition:
    if refused:
        return Condition("Degraded", "True", "Refused", refused)
    for each in parts:
        found = stored_condition(each.obj, "Degraded")
        if found.get("status") == "True":
            return Condition("Degraded", "True", found["reason"], f"{each.obj.name}: {found.get('message', '')}")
    return Condition("Degraded", "False", "AsExpected")


def host_of_slot(record: PlacedRecord | None) -> str:
    """Return the host of a placed slot; "" if it has none."""
    return record.state.host if record is not None and isinstance(record.state, Placed) else UNBOUND
