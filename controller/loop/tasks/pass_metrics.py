"""Metrics of each pass: convergence times, sandboxes that wait for quota, and the fate of warm members.

Kept in memory between passes; nothing is decided by it. Specs accepted before this daemon started are not timed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from controller.kinds.common.tracked_map import changed_keys
from controller.kinds.meta import StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import GenerationTime
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.quota import RESOURCES
from controller.plan.base.instance_index import index_of
from controller.ports import Meter

_SCOPES = ("namespace", "pool", "host")


class PassMetrics:
    """`tell` is called once a pass, after its writes are stored."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._begun: float | None = None
        self._in_force: dict[str, int] = {}  # by uid: the generation that was seen in force
        self._seen: Mapping[str, Sandbox] = {}  # those of the last pass
        self._warm: set[str] = set()
        self._failed: dict[str, int] = {}  # by a pool's member: how often it has failed to start
        self._short: set[tuple[str, str, str]] = set()
        self._waiting: Counter[tuple[str, str]] | None = None  # as published

    def tell(self, new_plan: Plan, snapshot: Snapshot) -> None:
        """Publish the figures of this pass."""
        if self._begun is None:
            self._begun = snapshot.now
            self._warm = {member.uid for member in new_plan.claimable}
            self._failed = _failures(snapshot)
        self._observe_convergence(snapshot)
        self._observe_deletions(new_plan, snapshot)
        self._pools(new_plan, snapshot)
        self._shortages(new_plan, snapshot)

    def _observe_convergence(self, snapshot: Snapshot) -> None:
        generations = self._in_force
        changed, self._seen = changed_keys(self._seen, snapshot.desired.sandboxes), snapshot.desired.sandboxes
        for uid in changed:
            sandbox = snapshot.desired.sandboxes.get(uid)
            if sandbox is None:
                generations.pop(uid, None)
                continue
            obj = sandbox.obj
            instance = snapshot.instances.get(uid)
            since = accepted_at(obj, instance)
            if since is not None and self._begun is not None and since < self._begun:
                continue  # never timed: so are most when a daemon starts
            if generations.get(uid) == obj.generation or not is_in_force(obj):
                continue
            generations[uid] = obj.generation
            if since is not None:
                self._took(snapshot, obj, instance, snapshot.now - since)

    def _took(self, snapshot: Snapshot, obj: StoredObject, instance: Instance | None, seconds: float) -> None:
        operation = "create" if obj.generation == 1 else "update"
        self._meter.observe("paddock_convergence_duration_seconds", seconds, operation=operation)
        pool = snapshot.pool_of(obj.uid)
        if operation == "create" and pool and instance is not None and instance.state.claim.launch == "Warm":
            self._meter.observe("paddock_pool_claim_duration_seconds", seconds, namespace=obj.namespace, pool=pool)

    def _observe_deletions(self, new_plan: Plan, snapshot: Snapshot) -> None:
        for ref, _ in new_plan.writes.finalized:
            sandbox = snapshot.desired.sandboxes.get(ref.uid)
            if sandbox is not None and sandbox.obj.deleted_at is not None:
                seconds = max(0.0, snapshot.now - sandbox.obj.deleted_at)
                self._meter.observe("paddock_convergence_duration_seconds", seconds, operation="delete")

    def _pools(self, new_plan: Plan, snapshot: Snapshot) -> None:
        for member in new_plan.claimable:
            if member.uid not in self._warm:
                self._warm.add(member.uid)
                seconds = max(0.0, snapshot.now - member.created_at)
                labels = {"namespace": member.pool.namespace, "pool": member.pool.name}
                self._meter.observe("paddock_pool_startup_duration_seconds", seconds, **labels)
        for retired in new_plan.retirements:
            labels = {"namespace": retired.pool.namespace, "pool": retired.pool.name}
            self._meter.count("paddock_pool_members_retired_total", reason=retired.reason, **labels)
        self._warm &= snapshot.instances.keys()
        failed = _failures(snapshot)
        for uid in (uid for uid, count in failed.items() if count > self._failed.get(uid, 0)):
            self._failed_to_start(snapshot, snapshot.instances[uid])
        self._failed = failed

    def _failed_to_start(self, snapshot: Snapshot, member: Instance) -> None:
        pool, failure = snapshot.desired.pools[member.parent_uid].obj, member.state.backoff.failure
        if failure is not None:
            labels = {"namespace": pool.namespace, "pool": pool.name, "reason": failure.reason}
            self._meter.count("paddock_pool_startup_failures_total", **labels)

    def _shortages(self, new_plan: Plan, snapshot: Snapshot) -> None:
        """Count the sandboxes that wait for quota; objects in flight keep their last state."""
        shortages = {(shortage.uid, shortage.scope, shortage.resource) for shortage in new_plan.shortages}
        shortages |= {shortage for shortage in self._short if shortage[0] in snapshot.progress.in_flight}
        waiting = Counter((scope, resource) for _, scope, resource in shortages)
        for scope, resource in _quota_labels() if waiting != self._waiting else ():
            self._meter.gauge(
                "paddock_quota_waiting_sandboxes", waiting[scope, resource], scope=scope, resource=resource
            )
        self._waiting = waiting
        for _, scope, resource in shortages - self._short:
            self._meter.count("paddock_quota_rejections_total", scope=scope, resource=resource)
        self._short = shortages


def _failures(snapshot: Snapshot) -> dict[str, int]:
    """Return the consecutive failures of each pool member."""
    if not snapshot.desired.pools:
        return {}
    members = ((uid, snapshot.instances[uid]) for uid in index_of(snapshot.instances).own_uids)
    return {
        uid: instance.state.backoff.failure.count
        for uid, instance in members
        if instance.parent_uid in snapshot.desired.pools and instance.state.backoff.failure is not None
    }


def _quota_labels() -> Iterator[tuple[str, str]]:
    return ((scope, resource.name) for scope in _SCOPES for resource in RESOURCES)


def is_in_force(obj: StoredObject) -> bool:
    """Return True if the status says that this generation of the spec is in force."""
    if obj.deleted_at is not None or obj.status.get("observedGeneration") != obj.generation:
        return False
    statuses = {condition["type"]: condition["status"] for condition in obj.status.get("conditions", ())}
    if statuses.get("Suspended") == "True" or statuses.get("Finished") == "True":
        return True
    return (
        statuses.get("Ready") == "True" and statuses.get("Provisioned") == "True" and statuses.get("Resized") == "True"
    )


def accepted_at(obj: StoredObject, instance: Instance | None) -> float | None:
    """Return when this generation was accepted, in Unix seconds; None if unknown."""
    if obj.generation == 1:
        return obj.created_at
    changed = instance.state.lifecycle.changed if instance is not None else GenerationTime()
    return changed.at if changed.generation == obj.generation and changed.at else None
