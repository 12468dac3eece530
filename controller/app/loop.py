"""The reconcile loop: its pass, its workers, and the periodic work beside it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.app.core import Core
from controller.app.engine import hibernation_judge
from controller.app.hosts import host_reports
from controller.app.memory import without_collection
from controller.app.store import lineage_file
from controller.engine.engine import DockerEngine
from controller.engine.usage.cgroup import CgroupUsage
from controller.engine.usage.host import HostGauge, disk_share
from controller.engine.usage.memory_folders import read_memory_folders
from controller.engine.usage.writable_layers import LAYERS_SECONDS, WritableLayers
from controller.kinds.planning.snapshot import SweepRules
from controller.kinds.registry import discover
from controller.loop.activity import ActivityLog
from controller.loop.clock_jump import ClockJump
from controller.loop.fleet.lost_hosts import LOST_SECONDS, LostHosts
from controller.loop.fleet.unknown_hosts import UNKNOWN_SECONDS, UnknownHosts
from controller.loop.reconcile_loop import Periodic, ReconcileLoop
from controller.loop.reconcile_pass import ReconcilePass
from controller.loop.schedule import Schedule
from controller.loop.store_lineage import StoreLineage, newest
from controller.loop.tasks.canary import CANARY_SECONDS, CanaryWatch
from controller.loop.tasks.egress_audit import EGRESS_SECONDS, EgressAudit
from controller.loop.tasks.health import HEALTH_SECONDS, HealthWatch
from controller.loop.tasks.hibernation import HibernationWatch
from controller.loop.tasks.images import IMAGES_SECONDS, ImageKeeper
from controller.loop.tasks.pressure import PressureWatch
from controller.loop.tasks.prober import Prober
from controller.loop.tasks.usage_cache import UsageCache
from controller.loop.workers import Workers
from controller.metrics.collectors import collect
from controller.plan.capacity.images import PruneRules
from controller.policy.levels.levels import Policy
from controller.ports import Lease, Store
from controller.ports.fleet import Fleet
from controller.service.sources.host import host_ref
from controller.service.watch.announce import announcing
from controller.service.watch.hub import Watches
from controller.store.sql_store import SqlStore


@dataclass(frozen=True, slots=True)
class LoopParts:
    """Reconcile loop, not started, and its parts that services read."""

    reconcile_loop: ReconcileLoop
    reconcile_pass: ReconcilePass
    watches: Watches
    activity: ActivityLog
    samples: UsageCache
    canary: CanaryWatch
    place: Fleet
    layers: WritableLayers


@dataclass(frozen=True, slots=True)
class Host:
    """Parts of the reconcile loop: the store (`announced` notifies watches), the engine, the policy."""

    core: Core
    store: SqlStore
    announced: Store
    lease: Lease
    engine: DockerEngine
    policy: Policy
    place: Fleet


def make_loop(
    core: Core,
    store: SqlStore,
    lease: Lease,
    engine: DockerEngine,
    policy: Policy,
    place: Fleet,
    fail: Callable[[], None],
) -> LoopParts:
    """Put the reconcile loop together, without starting it. `fail` is called if this daemon can't keep its host."""
    watches = Watches(store, core.clock)
    host = Host(
        core, store, announced=announcing(store, watches.notify), lease=lease, engine=engine, policy=policy, place=place
    )
    activity, schedule = ActivityLog(core.clock), Schedule(core.meter)
    canary = _make_canary(host)
    layers = WritableLayers(core.last.alive, core.clock, time.monotonic, engine.layer_bytes)
    samples = _make_usage(core, layers)
    egress = EgressAudit(snapshot=core.last, streams=engine.streams, audit=store.audit, clock=core.clock)
    workers = _make_workers(host, egress)
    reconcile_pass = _make_pass(
        host, workers, canary, activity=activity, layers=layers, egress=egress, schedule=schedule
    )
    health, images = _make_health(host, samples, layers), _make_image_keeper(host)
    reconcile_loop = ReconcileLoop(
        reconcile_pass=reconcile_pass,
        waker=core.waker,
        workers=workers,
        engine=engine,
        store=store,
        jobs=schedule,
        clock=core.clock,
        meter=core.meter,
        resync_seconds=core.settings.resync_seconds,
        periodic=(
            Periodic("canary", CANARY_SECONDS, canary.tick),
            Periodic("egress", EGRESS_SECONDS, egress.observe_now),
            Periodic("health", HEALTH_SECONDS, health.observe_now),
            Periodic("images", IMAGES_SECONDS, images.observe_now),
            Periodic("layers", LAYERS_SECONDS, layers.measure),
            *_beside_others(host),
            *host_reports(core, host.announced, engine, place=place, fail=fail, reached=core.settings.reached()),
        )
        if core.settings.is_host
        else (),
        loading=without_collection,
        leads=place.leads,
    )
    return LoopParts(
        *(reconcile_loop, reconcile_pass, watches, activity, samples, canary, place),
        layers=layers,
    )


def _beside_others(host: Host) -> tuple[Periodic, ...]:
    """Return the work that only a daemon beside others has."""
    if not host.place.shares_store:
        return ()
    lost = LostHosts(host.announced, host.place, host.core.clock)
    unknown = UnknownHosts(host.announced, host.place, host.core.clock)
    return (
        Periodic("lost-hosts", LOST_SECONDS, lost.observe_now),
        Periodic("unknown-hosts", UNKNOWN_SECONDS, unknown.observe_now),
    )


def _make_canary(host: Host) -> CanaryWatch:
    core = host.core
    canary = CanaryWatch(
        host.engine.canary if core.is_local else None,
        host.announced,
        core.clock,
        core.waker.wake,
        host_ref(host.store.instance_id, core.settings.host_name),
        range_=host.policy.network_range,
        period=core.settings.canary_seconds,
    )
    core.undo.callback(canary.stop)
    return canary


def _make_usage(core: Core, layers: WritableLayers) -> UsageCache:
    """Make the usage reader of scrapes and `top`: its own, since a read closes the files of other containers."""
    usage = CgroupUsage(stalls=core.settings.metrics_detail)
    core.undo.callback(usage.close)
    detail, labels = core.settings.metrics_detail, core.settings.metrics_labels
    collect(core.registry, core.last, usage, layers=layers.now, detail=detail, labels=labels)
    return UsageCache(core.last, usage, core.clock)


def _make_workers(host: Host, egress: EgressAudit) -> Workers:
    core, engine = host.core, host.engine
    workers = Workers(
        engine,
        core.meter,
        threads=core.settings.workers,
        wake=core.waker.wake,
        wake_now=core.waker.wake_now,
        may_act=host.lease.is_held,
        trace=core.traces.of,
        before=egress.before,
    )
    ages, queue = workers.ages_seconds, {"queue": "sandbox"}
    watch = core.meter.watch
    watch("paddock_workqueue_unfinished_work_seconds", lambda: sum(ages()), **queue)
    watch("paddock_workqueue_longest_running_processor_seconds", lambda: max(ages(), default=0.0), **queue)
    watch("paddock_reconcile_last_full_sync_timestamp_seconds", lambda: engine.observe().at)
    return workers


def _make_pass(
    host: Host,
    workers: Workers,
    canary: CanaryWatch,
    activity: ActivityLog,
    layers: WritableLayers,
    egress: EgressAudit,
    schedule: Schedule,
) -> ReconcilePass:
    """Build the reconcile pass with its observers, and those that only it needs."""
    core = host.core
    store = host.store
    engine = host.engine
    settings = host.core.settings
    prober = Prober(engine.probes, clock=core.clock, wake=core.waker.wake)
    core.undo.callback(prober.stop)
    lineage = StoreLineage(lineage_file(settings), store.instance_id)
    core.undo.callback(lineage.close)
    rules = SweepRules(settings.orphan_grace_seconds, settings.orphan_share)

    def sweep(revision: int) -> SweepRules:
        return replace(rules, withheld=lineage.follow(revision, lambda: newest(engine.observe())))

    return ReconcilePass(
        store=host.announced,
        engine=engine,
        workers=workers,
        prober=prober,
        clock=core.clock,
        meter=core.meter,
        policy=host.policy,
        sweep=sweep,
        may_act=host.lease.is_held,
        activity=activity,
        cpu=CgroupUsage(),
        clock_jumped=ClockJump(core.clock, tell=schedule.reset).jumped,
        pressure=PressureWatch(
            HostGauge(core.clock) if core.is_local else None, core.clock, scale=settings.pressure_scale
        ),
        canary=canary,
        hibernation=HibernationWatch(hibernation_judge(core), core.clock),
        layers=layers.now,
        unresolved=egress.unresolved,
        last=core.last,
        gateway=core.gateway,
        place=host.place,
    )


def _make_health(host: Host, samples: UsageCache, layers: WritableLayers) -> HealthWatch:
    engine = host.engine
    return HealthWatch(
        snapshot=host.core.last,
        samples=samples.now,
        store=host.announced,
        clock=host.core.clock,
        host=host_ref(host.store.instance_id, host.core.settings.host_name),
        disk=lambda: disk_share(engine.observe().facts.root_dir),
        layers=layers.now,
        folders=read_memory_folders,
    )


def _make_image_keeper(host: Host) -> ImageKeeper:
    core = host.core
    return ImageKeeper(
        host.engine.image_store,
        snapshot=core.last,
        store=host.announced,
        registry=discover(),
        clock=core.clock,
        meter=core.meter,
        host=host_ref(host.store.instance_id, core.settings.host_name),
        rules=PruneRules(core.settings.prune_images, core.settings.image_grace_seconds, host.store.instance_id),
    )
