"""One reconcile pass: observe, plan, store, act. A pass never waits for the engine, only for the store."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain

import structlog

from controller.kinds.common.labels import egress_uid
from controller.kinds.common.tracked_map import TrackedMap
from controller.kinds.observed.canary import UNWATCHED
from controller.kinds.observed.models import NO_GATEWAY, GatewayView
from controller.kinds.observed.observed import Observation
from controller.kinds.observed.usage import LayerUsage
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import (
    DesiredObjects,
    FleetView,
    HostView,
    Measurements,
    ModelView,
    PassProgress,
    PlanningRules,
    Sandbox,
    Snapshot,
    SweepRules,
)
from controller.kinds.quota import Amount, pool_scope, replicas_scope
from controller.kinds.registry import discover
from controller.kinds.sandboxpool import whole_uid
from controller.loop.activity import ActivityLog
from controller.loop.desired import Desired
from controller.loop.fleet.placements import PlacementKeeper
from controller.loop.garbage import GarbageCollector
from controller.loop.last_snapshot import LastSnapshot
from controller.loop.plugins import Plugins
from controller.loop.snapshots import Objects
from controller.loop.tasks.canary import CanaryWatch
from controller.loop.tasks.cpu_sampling import sample
from controller.loop.tasks.hibernation import HibernationWatch
from controller.loop.tasks.pass_metrics import PassMetrics
from controller.loop.tasks.pressure import PressureWatch
from controller.loop.tasks.prober import Prober
from controller.loop.workers import Workers
from controller.loop.workflows import RunObserver
from controller.plan.base.instance_index import index_of
from controller.plan.base.memo import Memo
from controller.plan.host import plan
from controller.policy.levels.levels import Policy
from controller.policy.profiles import as_seen
from controller.policy.quota_ledger import HOST
from controller.ports import Clock, Conflict, CpuReader, Engine, Meter, Store, StoreError
from controller.ports.fleet import SINGLE, Fleet

_log = structlog.get_logger("paddock.loop")


class ReconcilePass:
    """Runs passes, and keeps caches between them that could be rebuilt from the store."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        workers: Workers,
        prober: Prober,
        clock: Clock,
        meter: Meter,
        policy: Policy,
        sweep: Callable[[int], SweepRules] = lambda _: SweepRules(),
        may_act: Callable[[], bool] = lambda: True,
        activity: ActivityLog | None = None,
        cpu: CpuReader | None = None,
        clock_jumped: Callable[[], float] = lambda: 0.0,
        pressure: PressureWatch | None = None,
        canary: CanaryWatch | None = None,
        hibernation: HibernationWatch | None = None,
        layers: Callable[[], Mapping[str, LayerUsage]] = dict,
        unresolved: Callable[[], Mapping[str, tuple[str, ...]]] = dict,
        last: LastSnapshot | None = None,
        gateway: Callable[[], GatewayView] = lambda: NO_GATEWAY,
        place: Fleet = SINGLE,
    ) -> None:
        """`activity` is shared with the API. Without `cpu` no sandbox counts as idle.

        `clock_jumped` returns the seconds of a clock jump once after it, else 0. Without `pressure` the host is never
        short of anything, without `hibernation` it never hibernates. Without `canary` the network guard is not tested.
        `sweep` takes the store's revision.
        `layers` are the measured sizes of writable layers, `unresolved` the names that proxies could not resolve.
        `gateway` is the state of the model gateway. `place` is this host among those of the store.
        """
        self._prober = prober
        self._store, self._engine, self._workers = store, engine, workers
        self._clock, self._meter, self._policy = clock, meter, policy
        self._activity, self._cpu = activity or ActivityLog(clock), cpu
        self._pressure, self._canary = pressure or PressureWatch(None, clock), canary
        self._hibernation = hibernation or HibernationWatch(None, clock)
        self._garbage = GarbageCollector(store, discover())
        self._place = place
        self._desired = Desired(store, self._garbage, place)
        self._layers, self._gateway, self._unresolved = layers, gateway, unresolved
        # Called after each pass with what runs, plugins, snapshots, and the model gateway depend on.
        self.report_runs: RunObserver = lambda *_: None
        self.report_plugins: Callable[[Plugins], None] = lambda _: None
        self.report_snapshots: Callable[[Objects, Snapshot], None] = lambda *_: None
        self.report_models: Callable[[Snapshot], None] = lambda _: None
        self.placements: PlacementKeeper | None = None  # where a scheduler chooses hosts; woken after each pass
        self._sweep, self._may_act, self._clock_jumped = sweep, may_act, clock_jumped
        self._figures = PassMetrics(meter)
        self._instances: TrackedMap[Instance] | None = None
        self._memo = Memo()
        self._fitted: object = None  # the host's facts and the profiles that the policy was made for
        self._version = ""
        self._drifted: Mapping[str, int] = {}
        self._last = last or LastSnapshot()

    @property
    def last(self) -> Snapshot | None:
        """Return the snapshot of the last pass; None before the first."""
        return self._last.now

    def run(self) -> Plan:
        """Run one pass. Raises StoreError if the store can't be used: then nothing was started."""
        if not self._may_act():
            raise StoreError("leader lease expired; reconciling paused")
        started_at = time.perf_counter()
        snapshot, new_plan = self._decide()
        self._prober.set_probes(new_plan.probes, snapshot.desired.sandboxes, snapshot.instances)
        before = self.last.progress.shortages if self.last else ()
        # What runs is known here before the store tells anyone of it: who waited for Ready asks for metrics at once.
        self._last.now = replace(snapshot, progress=replace(snapshot.progress, drifted=self._drifted, shortages=before))
        self._store_writes(new_plan, snapshot)
        self._activity.release(new_plan.releases)
        for group in new_plan.groups:
            self._workers.start(group)
        sample(new_plan.samples, self._cpu, self._clock, self._activity)
        self._drifted = _still_drifted(self._drifted, new_plan, snapshot)
        # Objects in flight were not decided in this pass.
        undecided = [shortage for shortage in before if shortage.uid in snapshot.progress.in_flight]
        self._last.now = replace(
            snapshot,
            instances=self._instances or {},
            progress=replace(snapshot.progress, drifted=self._drifted, shortages=(*new_plan.shortages, *undecided)),
        )
        self._record_metrics(new_plan, time.perf_counter() - started_at)
        self._figures.tell(new_plan, snapshot)
        if self._canary:
            self._canary.request_test(new_plan.deferrals)
        self._activity.pass_ended(new_plan.queued)
        self.report_runs(self._desired.runs.now, snapshot, new_plan.writes.statuses)
        self.report_plugins(self._desired.plugins.now)
        self.report_snapshots(self._desired.snapshots.now, snapshot)
        self.report_models(snapshot)
        if self.placements is not None:
            self.placements.wake()
        return new_plan

    def _decide(self) -> tuple[Snapshot, Plan]:
        """Observe and plan; again if a sandbox to be stopped as idle came into use meanwhile."""
        while True:
            snapshot = self._observe()
            policy, version = self._fitting_policy(snapshot)
            new_plan = plan(snapshot, policy, version, self._memo)
            if self._activity.hold(new_plan.holds, snapshot.measured.activity):
                return snapshot, new_plan

    def _observe(self) -> Snapshot:
        """Return one immutable snapshot. Actions in flight are read first: later results still count as in flight."""
        in_flight, results = self._workers.view()
        sandboxes = self._desired_sandboxes()
        observed = self._as_own(self._engine.observe())
        moved_uids = frozenset(uid for uid in observed.containers if uid in self._desired.elsewhere)
        instances = self._instances = self._recorded_instances(sandboxes).updated({}, moved_uids)
        now = self._clock.now()
        if jump := self._clock_jumped():  # asked after that, so that a jump is known to whatever the time decides
            self._activity.clock_jumped(jump, self._recorded_uses(sandboxes))
            now = self._clock.now()
        if not observed.facts.cpus and not observed.blind:
            observed = replace(observed, revision=0)  # the host's facts are not known yet; they arrive within a moment
        return Snapshot(
            now=now,
            instance_id=self._store.instance_id,
            desired=DesiredObjects(sandboxes, self._desired.pools()),
            observed=observed,
            instances=instances,
            rules=PlanningRules(
                quotas=self._desired.quotas.now,  # as of the refresh above
                object_counts=self._desired.counts.now,
                profiles=self._desired.profiles.now,
                sweep=self._sweep(self._desired.revision),
            ),
            measured=Measurements(
                probes=self._prober.view(),
                activity=self._activity.view(sandboxes),
                layers=self._layers(),
                unresolved_hosts=self._unresolved(),
            ),
            host=HostView(
                pressure=self._pressure.observe_now(observed.facts.root_dir),
                hibernation=self._hibernation.observe_now(observed.containers),
                canary=self._canary.see(observed) if self._canary else UNWATCHED,
            ),
            models=ModelView(self._desired.providers.now, self._desired.model_servers.now, self._gateway()),
            fleet=self._fleet_view(observed, moved_uids, sandboxes, instances),
            progress=PassProgress(in_flight, results),
        )

    def _fleet_view(
        self,
        observed: Observation,
        moved_uids: frozenset[str],
        sandboxes: Mapping[str, Sandbox],
        instances: TrackedMap[Instance],
    ) -> FleetView:
        """Return this host among the others of its store."""
        return FleetView(
            hosts=self._desired.hosts.now,
            host=self._place.host,
            unbound=self._desired.unbound,
            untemplated=self._desired.untemplated_uids(),
            moved_uids=moved_uids,
            unmoved_uids=self._unmoved_uids(observed, moved_uids, sandboxes, instances),
            waits=self.placements.waits() if self.placements is not None else None,
            elsewhere=self._elsewhere(instances),
            pools_elsewhere=self._pools_elsewhere(instances),
            leads=self._place.leads(),
            shares_store=self._place.shares_store,
        )

    def _recorded_uses(self, sandboxes: Mapping[str, Sandbox]) -> Mapping[str, tuple[float, ...]]:
        """Return the times of the sandboxes' stored uses, and of the starts of their runs as the last pass saw them.

        What started since may have done so after the clock was set.
        """
        uses = {}
        containers = self.last.observed.containers if self.last else {}
        instances: Mapping[str, Instance] = self._instances if self._instances is not None else {}
        for uid in sandboxes:
            instance = instances.get(uid)
            use = (
                instance.state.lifecycle.use.at
                if instance is not None and instance.state.lifecycle.use is not None
                else 0.0
            )
            uses[uid] = (use, *(container.started_at for container in containers.get(uid, ()) if container.started_at))
        return uses

    def _unmoved_uids(
        self,
        observed: Observation,
        moved_uids: frozenset[str],
        sandboxes: Mapping[str, Sandbox],
        instances: Mapping[str, Instance],
    ) -> frozenset[str]:
        """Return the uids of containers that are here though their sandboxes or pools never were this host's."""
        if not self._place.shares_store:
            return frozenset()
        rebound = self._desired.rebound
        unknown = [
            uid for uid in observed.containers if not (uid in sandboxes or uid in instances or uid in moved_uids)
        ]
        recorded = self._store.instances(unknown) if unknown else ()
        return frozenset(instance.uid for instance in recorded if instance.parent_uid not in rebound) | (
            moved_uids - rebound
        )

    def _as_own(self, observed: Observation) -> Observation:
        """Return the observation; a blind one of an engine that may not act for this host."""
        hosts = [host.obj for host in self._desired.hosts.now.values()]
        refusal = self._place.engine_refusal(hosts, observed.facts.engine_id)
        return replace(observed, blind=refusal) if refusal else observed

    def _recorded_instances(self, sandboxes: Mapping[str, Sandbox]) -> TrackedMap[Instance]:
        """Return the instances by uid; only those that claims may have changed are read again."""
        instances = self._instances
        if instances is None:
            own_instances = self._store.instances(host=self._place.within(self._place.host))
            return TrackedMap({instance.uid: instance for instance in own_instances})
        claimed = {uid for uid in index_of(instances).own_uids if uid in sandboxes}  # sandboxes' own now
        if not claimed:
            return instances
        fresh_instances = {instance.uid: instance for instance in self._store.instances(claimed)}
        return instances.updated(fresh_instances, claimed - fresh_instances.keys())

    def _elsewhere(self, instances: TrackedMap[Instance]) -> Mapping[str, Amount]:
        """Return what other hosts reserve, by namespace; read only where there are other hosts."""
        if not self._place.shares_store:
            return {}
        own_amounts = index_of(instances).reserved
        namespaces = {quota.obj.namespace for quota in self._desired.quotas.now.values()} - {HOST}
        stored = self._store.reservations(*sorted(namespaces)) if namespaces else {}
        return {name: amount - own_amounts.get(name, Amount()) for name, amount in stored.items()}

    def _pools_elsewhere(self, instances: TrackedMap[Instance]) -> Mapping[str, Amount]:
        """Return what other hosts hold of the pools with a part here, as far as bounds need it."""
        parts = [
            pool_part
            for pool_part in self._desired.pools().values()
            if whole_uid(pool_part.obj) != pool_part.obj.uid and pool_part.spec
        ]
        quotas = {
            pool_scope(whole_uid(pool_part.obj))
            for pool_part in parts
            if pool_part.spec and pool_part.spec.quota is not None
        }
        most = {
            whole_uid(pool_part.obj)
            for pool_part in parts
            if pool_part.spec and pool_part.spec.max_replicas is not None
        }
        if not quotas and not most:
            return {}
        index = index_of(instances)
        own_amounts = {
            **index.reserved,
            **{replicas_scope(uid): Amount(sandboxes=index.counts_by_whole_pool.get(uid, 0)) for uid in most},
        }
        stored = self._store.reservations(*sorted(quotas), *map(replicas_scope, sorted(most)))
        return {name: amount - own_amounts.get(name, Amount()) for name, amount in stored.items()}

    def _desired_sandboxes(self) -> Mapping[str, Sandbox]:
        """Return the sandboxes, after garbage collection has requested every deletion that is due."""
        sandboxes = self._desired.refresh()
        # Each round follows one link of a chain of owners.
        while self._place.leads() and self._garbage.collect(self._clock.now()):
            sandboxes = self._desired.refresh()
        return sandboxes

    def _fitting_policy(self, snapshot: Snapshot) -> tuple[Policy, str]:
        """Return the policy fitted to this host, and its version."""
        key = (snapshot.observed.facts, snapshot.rules.profiles)
        if self._fitted != key:
            self._fitted, self._policy = key, as_seen(self._policy, snapshot)
            self._version = self._policy.version()
        return self._policy, self._version

    def _store_writes(self, new_plan: Plan, snapshot: Snapshot) -> None:
        """Store the writes before acting: an instance is recorded before its container exists."""
        try:
            stored: Mapping[str, Instance] = self._store.record(new_plan.writes) if new_plan.writes else {}
        except StoreError as error:
            self._activity.release(new_plan.holds)
            if isinstance(error, Conflict):
                self._instances = None  # another writer changed an instance: read and plan again
            raise
        if stored or new_plan.writes.finalized or new_plan.writes.retired:
            self._instances = self._instances_after(stored, new_plan, snapshot)
        self._workers.settle(snapshot.progress.results)

    def _instances_after(
        self, stored: Mapping[str, Instance], new_plan: Plan, snapshot: Snapshot
    ) -> TrackedMap[Instance]:
        """Return the instances after the writes. A mapping is never changed: snapshots and memos hold it."""
        gone_uids = [retired.uid for retired in new_plan.writes.retired]
        for ref, finalizer in new_plan.writes.finalized:
            sandbox = snapshot.desired.sandboxes.get(ref.uid)
            if sandbox is not None and sandbox.obj.finalizers == (finalizer,):  # else it waits for others
                gone_uids += [ref.uid, egress_uid(ref.uid)]
        return (self._instances or TrackedMap()).updated(stored, gone_uids)

    def _record_metrics(self, new_plan: Plan, seconds: float) -> None:
        """Count the pass and what it decided, and log its plan.

        The label `controller` is that of controller-runtime's metrics, whose dashboards work with these; Paddock has
        one controller, so that its value is always the same.
        """
        result = "requeue_after" if new_plan.next_wake is not None else "success"
        self._meter.count("paddock_reconcile_total", controller="sandbox", result=result)
        self._meter.observe("paddock_reconcile_duration_seconds", seconds, controller="sandbox")
        for field in chain.from_iterable(new_plan.drift.values()):
            self._meter.count("paddock_reconcile_drift_detected_total", field=field)
        if new_plan.orphans is not None:
            self._meter.gauge("paddock_orphan_containers", new_plan.orphans)
        if new_plan.orphans_removed:
            self._meter.count("paddock_reaped_total", new_plan.orphans_removed, reason="orphan")
        for reason in new_plan.reaped:
            self._meter.count("paddock_reaped_total", reason=reason)
        if new_plan.groups:
            _log.debug("plan", plan=str(new_plan))


def _still_drifted(before: Mapping[str, int], new_plan: Plan, snapshot: Snapshot) -> Mapping[str, int]:
    """Return drifted fields by uid after this pass; objects not planned in it keep their count."""
    if not new_plan.drift and before.keys() <= snapshot.desired.sandboxes.keys():
        return before
    former_counts = {
        uid: count for uid, count in before.items() if uid in snapshot.desired.sandboxes and uid not in new_plan.drift
    }
    new_counts = {
        uid: len(set(fields)) for uid, fields in new_plan.drift.items() if fields and uid in snapshot.desired.sandboxes
    }
    return {**former_counts, **new_counts}
