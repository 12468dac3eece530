"""Quota checks before a warm member is claimed: capacity for the claim, and older shortages that come first."""

from controller.kinds.meta import StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.kinds.quota import Amount, amount_of, pool_scope
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.sandboxpool import whole_uid
from controller.plan.common.instance_index import index_of
from controller.policy.quota_ledger import HOST, bounds, judge, pool_quotas


def admits_growth(snapshot: Snapshot, pool: Pool, member: Instance, reserves: Limits) -> bool:
    """Return True if all quotas of the snapshot let a member become a sandbox that reserves this much."""
    whole, part = amount_of(reserves, 1), amount_of(member.reserves)
    found = {**bounds(snapshot.quotas.values(), snapshot.observed.facts, snapshot.host), **pool_quotas([pool])}
    used, elsewhere = index_of(snapshot.instances).held, {**snapshot.elsewhere, **snapshot.pools_elsewhere}
    concerned = (pool_scope(whole_uid(pool.obj)), pool.obj.namespace, HOST)
    return all(
        judge(
            each,
            used.get(each.namespace, Amount()) + elsewhere.get(each.namespace, Amount()),
            whole,
            part,
        ).admitted
        for key in concerned
        for each in found.get(key, ())
    )


def waits_behind_shortage(snapshot: Snapshot, obj: StoredObject, spec: SandboxSpec) -> bool:
    """Return True if a new sandbox has to wait for a pending one of the same or a higher priority; all are older."""
    for each in snapshot.shortages:
        other = snapshot.sandboxes.get(each.uid)
        if other is None or other.spec is None or other.spec.priority < spec.priority or not each.holds_up:
            continue
        if each.scope == "host" or (each.scope == "namespace" and other.obj.namespace == obj.namespace):
            return True
    return False
