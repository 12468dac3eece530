"""Quota checks before a warm member is claimed: capacity for the claim, and older shortages that come first."""

from controller.kinds.meta import StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import DesiredObjects, PassProgress, Pool, Snapshot
from controller.kinds.quota import Amount, amount_of, pool_scope
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.sandboxpool import whole_uid
from controller.plan.base.instance_index import index_of
from controller.policy.quota_ledger import HOST, bounds, judge, pool_quotas


def admits_growth(snapshot: Snapshot, pool: Pool, member: Instance, reserves: Limits) -> bool:
    """Return True if all quotas of the snapshot let a member become a sandbox that reserves this much."""
    total, reserved = amount_of(reserves, 1), amount_of(member.reserves)
    bounds_by_scope = {
        **bounds(snapshot.rules.quotas.values(), snapshot.observed.facts, snapshot.fleet.host),
        **pool_quotas([pool]),
    }
    usage = index_of(snapshot.instances).reserved
    elsewhere = {**snapshot.fleet.elsewhere, **snapshot.fleet.pools_elsewhere}
    concerned = (pool_scope(whole_uid(pool.obj)), pool.obj.namespace, HOST)
    return all(
        judge(
            bound,
            usage.get(bound.namespace, Amount()) + elsewhere.get(bound.namespace, Amount()),
            total,
            reserved,
        ).admitted
        for key in concerned
        for bound in bounds_by_scope.get(key, ())
    )


def waits_behind_shortage(
    progress: PassProgress, desired: DesiredObjects, obj: StoredObject, spec: SandboxSpec
) -> bool:
    """Return True if a new sandbox has to wait for a pending one of the same or a higher priority; all are older."""
    for shortage in progress.shortages:
        pending = desired.sandboxes.get(shortage.uid)
        if pending is None or pending.spec is None or pending.spec.priority < spec.priority or not shortage.holds_up:
            continue
        if shortage.scope == "host" or (shortage.scope == "namespace" and pending.obj.namespace == obj.namespace):
            return True
    return False
