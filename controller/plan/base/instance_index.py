"""Index of all instances for passes and claims, kept from the changes: no answer looks at every instance."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from controller.kinds.common.tracked_map import derived
from controller.kinds.planning.instance_record import RETIRED, SANDBOX, WARM, Instance
from controller.kinds.quota import RESOURCES, Amount, pool_scope
from controller.policy.quota_ledger import HOST

_NO_AMOUNTS: Mapping[str, Amount] = MappingProxyType({})
_NO_MEMBERS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_NO_COUNTS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InstanceIndex:
    """Sums and lists of instances. `reserved` is by namespace, the host ("") and pool (`pool_scope`).

    `user_ids` are those of records, by uid. `members` are the uids of warm and retired members by their pool's uid,
    `counts_by_whole_pool` the number of instances that are or were a whole pool's, by its uid. `own_uids` are all that
    are still members, `claiming` the claims under way.
    """

    reserved: Mapping[str, Amount] = field(default_factory=lambda: _NO_AMOUNTS)
    user_ids: Mapping[str, int] = field(default_factory=lambda: _NO_COUNTS)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_MEMBERS)
    counts_by_whole_pool: Mapping[str, int] = field(default_factory=lambda: _NO_COUNTS)
    own_uids: frozenset[str] = frozenset()
    claiming: frozenset[str] = frozenset()

    def with_changes(self, changes: Iterable[tuple[str, Instance | None, Instance | None]]) -> "InstanceIndex":
        """Return the index after these changes."""
        change_list = list(changes)
        uids = {uid for uid, _, _ in change_list}
        return InstanceIndex(
            moved_sums(self.reserved, ((before, now) for _, before, now in change_list)),
            _moved_ids(self.user_ids, change_list),
            members=_moved_members(self.members, change_list),
            counts_by_whole_pool=_moved_counts(self.counts_by_whole_pool, change_list),
            own_uids=self.own_uids - uids | {uid for uid, _, now in change_list if now is not None and now.member_uid},
            claiming=self.claiming - uids
            | {uid for uid, _, now in change_list if now is not None and now.state.claim.is_pending},
        )

    def all_members(self) -> Iterable[str]:
        """Return the uids of the members of all pools."""
        return (uid for some in self.members.values() for uid in some)


_EMPTY = InstanceIndex()


def index_of(instances: Mapping[str, Instance]) -> InstanceIndex:
    """Return the index of these instances."""
    return derived(instances, _EMPTY)


def moved_sums(
    sums: Mapping[str, Amount], changes: Iterable[tuple[Instance | None, Instance | None]]
) -> dict[str, Amount]:
    """Return what namespaces, the host ("") and pools (`pool_scope`) hold after changes (before, after) of instances.

    A scope that holds nothing is left out.
    """
    totals: dict[str, list[int]] = {}
    for before, after in changes:
        for instance, sign in ((before, -1), (after, 1)):
            if instance is None:
                continue
            limits, pool = instance.reserves, instance.state.claim.pool
            scopes = {HOST, instance.namespace}
            for scope in (*scopes, pool_scope(pool)) if pool else scopes:
                total = totals.setdefault(scope, [0] * len(RESOURCES))
                total[0] += sign * limits.cpu_millicores
                total[1] += sign * limits.memory_bytes
                total[2] += sign * limits.pids
                # A pool's members have no seat before they are claimed, and a pool holds no number of sandboxes.
                total[3] += sign * (instance.role == SANDBOX and scope in scopes)
                total[4] += sign * limits.disk_bytes
                total[5] += sign * limits.gpus
    new_sums = {scope: sums.get(scope, Amount()) + Amount(*total) for scope, total in totals.items() if any(total)}
    return {scope: amount for scope, amount in {**sums, **new_sums}.items() if amount != Amount()}


def _moved_members(
    members: Mapping[str, tuple[str, ...]], changes: Iterable[tuple[str, Instance | None, Instance | None]]
) -> Mapping[str, tuple[str, ...]]:
    """Return the members of each pool after these changes; the same mapping if none moved."""
    uids_by_pool: dict[str, dict[str, None]] = {}
    for uid, before, now in changes:
        was, will = _pool_of(before), _pool_of(now)
        if was == will:
            continue
        for pool in filter(None, (was, will)):
            uids_by_pool.setdefault(pool, dict.fromkeys(members.get(pool, ())))
        if was:
            uids_by_pool[was].pop(uid, None)
        if will:
            uids_by_pool[will][uid] = None
    fresh = {pool: tuple(uids) for pool, uids in uids_by_pool.items()}
    return {pool: uids for pool, uids in {**members, **fresh}.items() if uids} if fresh else members


def _moved_ids(
    ids: Mapping[str, int], changes: Iterable[tuple[str, Instance | None, Instance | None]]
) -> Mapping[str, int]:
    """Return the user ids of instances after these changes; the same mapping if none differs."""
    new_ids = {uid: now.state.security.user_id if now is not None else 0 for uid, _, now in changes}
    new_ids = {uid: user_id for uid, user_id in new_ids.items() if ids.get(uid, 0) != user_id}
    if not new_ids:
        return ids
    fresh = {**ids, **new_ids}
    for uid, user_id in new_ids.items():
        if not user_id:
            del fresh[uid]
    return fresh


def _pool_of(instance: Instance | None) -> str:
    return instance.parent_uid if instance is not None and instance.role in (WARM, RETIRED) else ""


def _moved_counts(
    counts: Mapping[str, int], changes: Iterable[tuple[str, Instance | None, Instance | None]]
) -> Mapping[str, int]:
    """Return the counts by whole pool after these changes; the same mapping if none moved."""
    new_counts: dict[str, int] = {}
    for _, before, now in changes:
        was, will = (instance.state.claim.pool if instance is not None else "" for instance in (before, now))
        if was == will:
            continue
        for pool, step in ((was, -1), (will, 1)):
            if pool:
                new_counts[pool] = new_counts.get(pool, counts.get(pool, 0)) + step
    return {pool: count for pool, count in {**counts, **new_counts}.items() if count} if new_counts else counts
