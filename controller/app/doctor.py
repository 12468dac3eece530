"""Composition root of `paddock doctor`: it inspects this host by itself, and so works without a daemon."""

import http.client
import socket
import time
from dataclasses import replace

from controller.api.fleet.collect import unreachable
from controller.api.fleet.tls import FleetFilesError, seconds_left
from controller.app.fleet_tls import make_fleet_tls
from controller.build import build_hash
from controller.engine.kernel.host_users import read_overlaps
from controller.engine.observe.doctor import (
    group_exists,
    read_engine_facts,
    read_folder_facts,
    read_kernel_facts,
    read_socket_facts,
)
from controller.kinds.host import build_of
from controller.kinds.observed.doctor import (
    ClusterFacts,
    DaemonFacts,
    DoctorFacts,
    EngineFacts,
    Finding,
    NodeSighting,
    StoreFacts,
)
from controller.policy.host.doctor import judge
from controller.ports import Clock
from controller.ports.scheduler import Liveness, SchedulerError
from controller.scheduler.swarm.scheduler import SwarmScheduler
from controller.service.fleet.locations import OtherHost
from controller.settings import Settings
from controller.store.doctor import inspect_store
from controller.version import VERSION

_TIMEOUT_SECONDS, _DAY_SECONDS = 5.0, 86_400.0
_UP = {Liveness.UP: True, Liveness.DOWN: False, Liveness.UNKNOWN: None}


class _Clock:
    def now(self) -> float:
        return time.time()


def examine(settings: Settings) -> tuple[Finding, ...]:
    """Inspect this host and judge the findings.

    Takes at most twice the engine's timeout; of many hosts, 2 s more, and the timeout twice again for the scheduler.
    """
    clock, local = _Clock(), settings.is_host and settings.docker_host.startswith("unix:")
    engine = EngineFacts("", trouble="no engine: the setting roles is without `host`")
    if settings.is_host:
        engine = read_engine_facts(
            settings.docker_host, clock, timeout_seconds=settings.engine_timeout_seconds, local=local
        )
    group, store = settings.socket_group, _inspect_store(settings, clock)
    return judge(
        DoctorFacts(
            local=local,
            engine=engine,
            kernel=read_kernel_facts(clock, root_dir=engine.facts.root_dir, state_dir=settings.state_dir),
            engine_socket=read_socket_facts(settings.docker_host.removeprefix("unix://")),
            daemon_socket=read_socket_facts(str(settings.socket)),
            store=store,
            host=settings.host_name,
            hibernation_bytes=settings.hibernation_bytes,
            hibernate_to_plain_disk=settings.hibernate_to_plain_disk,
            version=build_of({"paddock": {"version": VERSION, "build": build_hash()}}),
            cluster=_ask_scheduler(settings),
            certificate_days=_certificate_days(settings, clock.now()),
            daemon=_ask_daemon(str(settings.socket))
            if "api" in settings.roles
            else _by_lease(store, settings.host_name),
            socket_group=group,
            socket_group_exists=not group or group_exists(group),
            pressure_scale=settings.pressure_scale,
            gpu_devices=settings.gpu_devices,
            host_roots=tuple(read_folder_facts(host_root.path, maps=True) for host_root in settings.host_roots),
            state=read_folder_facts(str(settings.state_dir)),
            secrets=read_folder_facts(str(settings.secrets_dir)),
            user_ids=settings.sandbox_ids,
            user_ids_held=read_overlaps(user_ids) if (user_ids := settings.user_ids()) else (),
            keeps_sandboxes=settings.is_host,
        )
    )


def _inspect_store(settings: Settings, clock: Clock) -> StoreFacts:
    """Return the state of the store; of many hosts, with those that don't answer this one."""
    if settings.scheduler == "single":
        return inspect_store(settings.database())
    store_facts = inspect_store(settings.database(), clock)
    alive = [OtherHost(host.name, host.address) for host in store_facts.hosts if host.is_alive]
    other_hosts = [host for host in alive if host.name != settings.host_name]
    if not other_hosts:
        return store_facts
    try:
        silent = unreachable(make_fleet_tls(settings), settings.host_name, other_hosts)
    except FleetFilesError as error:
        silent = {host.name: str(error) for host in other_hosts}
    return replace(
        store_facts, hosts=tuple(replace(host, unreachable=silent.get(host.name, "")) for host in store_facts.hosts)
    )


def _ask_scheduler(settings: Settings) -> ClusterFacts | None:
    """Return what the scheduler of many hosts says now; None: there is none, or this daemon never asks it."""
    if settings.scheduler != "swarm" or "fleet" not in settings.roles:
        return None
    scheduler = SwarmScheduler(settings.docker_host, "", timeout_seconds=settings.engine_timeout_seconds)
    try:
        scheduler.ping()
        nodes = [NodeSighting(host.name, _UP[host.liveness], host.message) for host in scheduler.hosts()]
        heartbeat = scheduler.heartbeat_seconds()
    except SchedulerError as error:
        return ClusterFacts(settings.scheduler, reason=error.problem.value, trouble=str(error))
    return ClusterFacts(settings.scheduler, tuple(nodes), heartbeat_seconds=heartbeat)


def _certificate_days(settings: Settings, now: float) -> float | None:
    """Return for how many days the certificate for other hosts is valid; None: there is none that can be read."""
    if settings.scheduler == "single" or not settings.fleet_cert_file:
        return None
    try:
        return seconds_left(settings.fleet_cert_file, now) / _DAY_SECONDS
    except (OSError, ValueError):  # said of each host that is therefore not reached
        return None


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _by_lease(store: StoreFacts, host: str) -> DaemonFacts:
    """Return the state of a daemon that only other daemons can ask: it is in the store."""
    alive = any(sighting.name == host and sighting.is_alive for sighting in store.hosts)
    state_text = "running: it holds the lease of its host" if alive else "no daemon holds the lease of this host"
    return DaemonFacts(alive, alive, state_text)


def _ask_daemon(path: str) -> DaemonFacts:
    """Ask the daemon for its readiness. A daemon that hangs is distinguished from none."""
    connection = _Unix(path)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        answer_text = "; ".join(answer.read(4096).decode("utf-8", "replace").split("\n")).strip("; ")
    except TimeoutError:
        return DaemonFacts(True, False, f"the daemon at {path} does not answer within {_TIMEOUT_SECONDS:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error)
        return DaemonFacts(False, False, f"no daemon answers at {path} ({why.lower()})")
    finally:
        connection.close()
    ready = answer.status == 200
    return DaemonFacts(True, ready, f"running and ready ({path})" if ready else f"not ready: {answer_text}")
