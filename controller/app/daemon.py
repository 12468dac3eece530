"""The composition root: the only file that names concrete classes. Importing it does no work; `serve` is the daemon."""

import logging
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from controller.api.app import create_app
from controller.api.middleware.load import LoadLimits
from controller.api.server.listeners import DoorRules, Doors
from controller.api.server.server import SocketTaken
from controller.app.crash_handler import end_with_endless_threads
from controller.app.logs import configure_logs
from controller.app.memory import keep_small, settled
from controller.engine.engine import DockerEngine
from controller.engine.kernel.firewall import NftFirewall
from controller.engine.kernel.package_hosts import read_package_hosts
from controller.engine.mounts.secrets import SecretFolder
from controller.engine.mounts.volumes import Volumes
from controller.engine.usage.cgroup import CgroupUsage
from controller.engine.usage.engine_disk import disk_share
from controller.engine.usage.fallback import FallbackUsage
from controller.engine.usage.host import HostGauge
from controller.engine.usage.writable_layers import LAYERS_SECONDS, Layers
from controller.kinds.planning.snapshot import SweepRules
from controller.kinds.registry import discover
from controller.loop.activity import ActivityLog
from controller.loop.clock import SystemClock
from controller.loop.clock_jump import Leap
from controller.loop.leader import Leading, wait_to_lead
from controller.loop.reconcile_loop import Heartbeat, Periodic
from controller.loop.reconcile_pass import Turn
from controller.loop.schedule import Schedule
from controller.loop.store_lineage import Lineage, newest
from controller.loop.tasks.canary import CANARY_SECONDS, CanaryWatch
from controller.loop.tasks.egress_audit import EGRESS_SECONDS, EgressAudit
from controller.loop.tasks.health import HEALTH_SECONDS, HealthWatch
from controller.loop.tasks.images import IMAGES_SECONDS, ImageKeeper
from controller.loop.tasks.pressure import PressureWatch
from controller.loop.tasks.prober import Prober
from controller.loop.tasks.usage_cache import Samples
from controller.loop.wake import Alarm
from controller.loop.workers import Workers
from controller.metrics.collectors import collect
from controller.metrics.log_counter import LogCounter
from controller.metrics.meter import PrometheusMeter
from controller.metrics.registry import Registry, new_registry
from controller.metrics.scrape_access import DoorError, open_door
from controller.metrics.server import CannotListen, MetricsServer
from controller.plan.capacity.images import PruneRules
from controller.policy.images import ImageRules
from controller.policy.levels.abilities import Confinements
from controller.policy.levels.levels import Policy
from controller.policy.levels.package_hosts import with_packages
from controller.ports import Lease, Meter, StoreError
from controller.service.objects.admission import admitting
from controller.service.services import make_services
from controller.service.sources.host import host_ref
from controller.service.trace import Traces
from controller.service.watch.announce import announcing
from controller.service.watch.hub import Watches
from controller.settings import Settings
from controller.store.sql_store import SqlStore
from controller.version import VERSION


class CannotStart(Exception):
    """The daemon can't run; says why and what to do."""


class StoppedWaiting(Exception):
    """Told to stop before it was this daemon's turn to act."""


class Daemon:
    """Everything put together. `start` raises CannotStart with nothing left running; `stop` is clean and final.

    `stopping` ends the wait for another daemon; it is set when this one has to be started anew: `failed` says so.
    """

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        self._settings, self._stopping = settings, stopping
        self._stack = ExitStack()
        self.metrics_port = 0
        self.api_url = ""  # of the TCP door
        self.failed = False

    def start(self) -> None:
        """Become the daemon that acts, open the store, bind the doors, then start the loop.

        The first failure undoes the rest. Raises CannotStart; StoppedWaiting.
        """
        with ExitStack() as undo:
            self._assemble(undo)
            self._stack = undo.pop_all()

    def stop(self) -> None:
        """Close the doors, finish the engine calls in flight, write down what came of them. Sandboxes run on."""
        self._stack.close()

    def _assemble(self, undo: ExitStack) -> None:
        settings, clock, alarm, traces = self._settings, SystemClock(), Alarm(), Traces()
        _make_state_folder(settings.state_dir)
        registry = new_registry(VERSION)
        meter = PrometheusMeter(registry)
        _count_logs(undo, meter)
        meter.gauge("paddock_config_last_reload_successful", 1)  # it would not start with one that is not
        meter.gauge("paddock_config_last_reload_success_timestamp_seconds", clock.now())
        store = SqlStore(settings.database(), meter=meter)
        undo.callback(store.close)
        lease = store.lease()
        undo.callback(lease.release)
        self._lead(lease)
        leading = Leading(lease, meter, self.fail)
        undo.callback(leading.stop)
        leading.start()  # a migration may take longer than the lease
        _open(store)
        _watch_connections(meter, store)
        meter.watch("paddock_leader", lambda: float(lease.held()))
        secrets = SecretFolder(settings.secrets_dir)
        engine = DockerEngine(
            store.instance_id,
            base_url=settings.docker_host,
            clock=clock,
            meter=meter,
            call_timeout_seconds=settings.engine_timeout_seconds,
            host_roots=settings.host_roots,
            mounts_dir=settings.mounts_dir,
            secrets=secrets,
            volumes=Volumes(settings.state_dir / "volumes", settings.volumes_per_namespace_bytes),
            firewall=NftFirewall() if settings.docker_host.startswith("unix:") else None,
            gpus=settings.gpu_devices,
        )
        undo.callback(engine.close)
        egress = EgressAudit(snapshot=lambda: turn.last, streams=engine.streams, audit=store.audit, clock=clock)
        wake, hurry, held, of, first = alarm.wake, alarm.hurry, lease.held, traces.of, egress.before
        workers = Workers(
            engine, meter, threads=settings.workers, wake=wake, hurry=hurry, may_act=held, trace=of, before=first
        )
        watches = Watches(store, clock)
        announced = announcing(store, watches.notify)
        prober = Prober(engine.probes, clock=clock, wake=alarm.wake)
        undo.callback(prober.stop)
        lineage = Lineage(settings.state_dir / "lineage.json", store.instance_id)
        undo.callback(lineage.close)
        policy = Policy(
            report_only=settings.attestation == "report",
            network_range=str(settings.network_range),
            images=ImageRules(settings.allowed_images, settings.images_by_digest),
            grants=settings.profile_grants,
            host_roots=settings.host_roots,
            confinements=Confinements(settings.runtimes, settings.apparmor_profiles, settings.selinux_types),
            exec_max_seconds=settings.exec_max_seconds,
            local_network=settings.local_network,
            peers=settings.peers,
        )
        policy = with_packages(policy, read_package_hosts(settings.package_sources), settings.package_hosts)
        rules = SweepRules(settings.orphan_grace_seconds, settings.orphan_share)
        schedule = Schedule(meter)
        activity, cpu = ActivityLog(clock), CgroupUsage()
        files = CgroupUsage(stalls=settings.metrics_detail)  # of its own: a reading lets go of all others
        undo.callback(cpu.close)
        gauge = HostGauge(clock) if settings.docker_host.startswith("unix:") else None  # else it is another host's
        bird, host = engine.canary if gauge else None, host_ref(store.instance_id)
        period, range_ = settings.canary_seconds, policy.network_range
        canary = CanaryWatch(bird, announced, clock, alarm.wake, host, range_=range_, period=period)
        undo.callback(canary.stop)
        turn = Turn(
            store=announced,
            engine=engine,
            workers=workers,
            prober=prober,
            clock=clock,
            meter=meter,
            policy=policy,
            sweep=lambda: replace(rules, withheld=lineage.follow(store.revision(), lambda: newest(engine.observe()))),
            may_act=lease.held,
            activity=activity,
            usage=cpu,
            leapt=Leap(clock, tell=schedule.reset).noticed,
            pressure=PressureWatch(gauge, clock, scale=settings.pressure_scale),
            canary=canary,
            layers=lambda: layers.now(),
        )
        undo.callback(files.close)
        usage = FallbackUsage(files, engine.stats)
        layers = Layers(lambda: turn.last.alive() if turn.last else (), clock, time.monotonic)
        undo.callback(usage.close)
        samples = Samples(lambda: turn.last, usage, clock)
        health = HealthWatch(
            snapshot=lambda: turn.last,
            samples=samples.now,
            store=announced,
            clock=clock,
            host=host,
            disk=lambda: disk_share(engine.observe().facts.root_dir),
            layers=layers.now,
        )
        images = ImageKeeper(
            engine.image_store,
            snapshot=lambda: turn.last,
            store=announced,
            registry=discover(),
            clock=clock,
            meter=meter,
            host=host,
            rules=PruneRules(settings.prune_images, settings.image_grace_seconds),
        )
        heart = Heartbeat(
            turn=turn,
            alarm=alarm,
            workers=workers,
            engine=engine,
            store=store,
            jobs=schedule,
            clock=clock,
            meter=meter,
            resync_seconds=settings.resync_seconds,
            periodic=(
                Periodic("canary", CANARY_SECONDS, canary.tick),
                Periodic("egress", EGRESS_SECONDS, egress.look),
                Periodic("health", HEALTH_SECONDS, health.look),
                Periodic("images", IMAGES_SECONDS, images.look),
                Periodic("layers", LAYERS_SECONDS, layers.measure),
            ),
        )
        ages, queue = workers.ages_seconds, {"queue": "sandbox"}
        meter.watch("paddock_workqueue_unfinished_work_seconds", lambda: sum(ages()), **queue)
        meter.watch("paddock_workqueue_longest_running_processor_seconds", lambda: max(ages(), default=0.0), **queue)
        meter.watch("paddock_reconcile_last_full_sync_timestamp_seconds", lambda: engine.observe().at)
        detail, labels = settings.metrics_detail, settings.metrics_labels
        collect(registry, lambda: turn.last, usage, layers=layers.now, detail=detail, labels=labels)

        def ready() -> list[tuple[str, str]]:
            return [("store", store.ping()), ("engine", engine.observe().blind), ("loop", heart.trouble)]

        services = make_services(
            registry=discover(),
            store=store,
            engine=engine,
            streams=engine.streams,
            admit=admitting(policy, engine.observe, lambda: canary.now),
            clock=clock,
            wake=alarm.hurry,
            snapshot=lambda: turn.last,
            policy=policy,
            watches=watches,
            meter=meter,
            in_use=activity,
            exec_rules=settings.exec_rules(),
            samples=samples.now,
            traces=traces,
            secrets=secrets,
            files=engine.files,
            left=engine.left,
            exec_folder=settings.state_dir / "execs",
            ports=engine.ports,
            connections=settings.port_limits(),
            transfers=settings.transfer_limits(),
        )
        load = LoadLimits(settings.requests_per_second, settings.requests_in_flight, settings.caller_share)
        load = load.with_lasting(transfers=settings.transfers, ports=settings.port_connections)
        make = partial(create_app, services, ready=ready, meter=meter, load=load)
        doors = Doors(_door_rules(settings), store.tokens, clock, lambda who: make(who=who))
        metrics = _metrics_server(settings, registry)
        _start_doors(undo, doors, metrics)
        self.api_url = doors.url
        undo.callback(watches.close)  # before the API stops: a watch that is open would hold it up
        self.metrics_port = metrics.port
        undo.callback(heart.stop)
        undo.callback(services.detached.resume())  # before the first turn: what is in use is not reaped
        heart.start()

    def _lead(self, lease: Lease) -> None:
        try:
            holder = wait_to_lead(lease, self._stopping, standby=self._settings.standby)
        except StoreError as error:
            raise CannotStart(f"the store can't be used: {error}") from error
        if holder and self._stopping.is_set():
            raise StoppedWaiting
        if holder:
            raise CannotStart(
                f"a Paddock daemon acts for this store already: {holder}; stop it, set another PADDOCK_STATE_DIR or"
                " PADDOCK_DATABASE_URL, or let this one wait for its end (PADDOCK_STANDBY=true)"
            )

    def fail(self) -> None:
        """End: another daemon has taken over, or this one can't go on. Of one that ends already it is no matter."""
        self.failed = self.failed or not self._stopping.is_set()
        self._stopping.set()


def _metrics_server(settings: Settings, registry: Registry) -> MetricsServer:
    try:
        door = open_door(settings.metrics_token_file, settings.metrics_tls_cert_file, settings.metrics_tls_key_file)
    except DoorError as error:
        raise CannotStart(str(error)) from error
    return MetricsServer(registry, settings.metrics_host, settings.metrics_port, door.token, door.tls)


def _count_logs(undo: ExitStack, meter: Meter) -> None:
    counter = LogCounter(meter)
    logging.getLogger().addHandler(counter)
    undo.callback(logging.getLogger().removeHandler, counter)


def _watch_connections(meter: PrometheusMeter, store: SqlStore) -> None:
    for state in ("checked_in", "checked_out", "overflow"):
        now = partial(lambda state: float(getattr(store.connections(), state)), state)
        meter.watch("paddock_store_connections", now, state=state)
    meter.watch("paddock_store_connections_max", lambda: float(store.connections().most))


def _door_rules(settings: Settings) -> DoorRules:
    rules = DoorRules(settings.socket, settings.socket_group, settings.socket_group_role, settings.access)
    rules = replace(rules, stall_seconds=settings.stall_seconds, share=settings.caller_share, host=settings.api_host)
    return replace(rules, port=settings.api_port, cert=settings.tls_cert_file, key=settings.tls_key_file)


def _start_doors(undo: ExitStack, doors: Doors, metrics: MetricsServer) -> None:
    try:
        undo.callback(doors.stop)
        doors.start()
        metrics.start()
        undo.callback(metrics.stop)
    except (SocketTaken, CannotListen) as error:
        raise CannotStart(str(error)) from error


def _open(store: SqlStore) -> None:
    try:
        store.open()
    except StoreError as error:
        raise CannotStart(f"the store can't be used: {error}") from error


def _make_state_folder(state_dir: Path) -> None:
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotStart(f"{state_dir}: {error.strerror}; set PADDOCK_STATE_DIR to a folder you may write") from error


def restore(settings: Settings, file: Path) -> str:
    """Put a backup in the place of the store; gives what was done, in words. Raises CannotStart."""
    store = SqlStore(settings.database())
    try:
        lease = store.lease()
        try:
            holder = lease.acquire()
            if holder:
                raise CannotStart(f"a Paddock daemon uses this store: {holder}; stop it first, then restore")
            return store.restore(file, stamp=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        finally:
            lease.release()
    except StoreError as error:
        raise CannotStart(f"nothing was restored: {error}") from error


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the process's exit code. Problems at the start are told on stderr.

    A daemon that another one has taken over from, or that can't go on, ends with 1: started again, it waits its turn.
    """
    configure_logs(settings)
    log = structlog.get_logger("paddock")
    stopping, each_second = threading.Event(), keep_small()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    daemon = Daemon(settings, stopping)
    end_with_endless_threads(daemon.fail)
    try:
        daemon.start()
    except StoppedWaiting:
        log.info("stopped")
        return 0
    except CannotStart as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the person who started it reads this
        return 1
    metrics = (
        f"http{'s' * bool(settings.metrics_tls_cert_file)}://{settings.metrics_host}:{daemon.metrics_port}/metrics"
    )
    doors = {"socket": str(settings.socket), "metrics": metrics} | ({"api": daemon.api_url} if daemon.api_url else {})
    log.info("serving", version=VERSION, pid=os.getpid(), **doors)
    settled()
    while not stopping.wait(1.0):  # a signal that comes just before one is heeded at its end: so none is endless
        each_second()
    log.info("stopping")
    daemon.stop()
    settled()  # the interpreter's last collection took several times as long as all the rest of stopping
    log.info("stopped")
    return int(daemon.failed)
