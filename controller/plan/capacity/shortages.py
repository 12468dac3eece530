"""Quota checks before a warm member is claimed: does it fit, and does an older shortage come first."""

from controller.kinds.meta import StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.kinds.quota import Amount, amount_of, of_pool
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.plan.capacity.reservations import held, held_by_pools
from controller.policy.quota_ledger import HOST, bounds, judge, of_pools


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
