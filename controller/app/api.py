"""The API and metrics listeners over the services."""

from dataclasses import replace
from functools import partial

from controller.api.app import create_app
from controller.api.fleet.forwarding import Forwarding
from controller.api.fleet.links import Links
from controller.api.fleet.tls import FleetFilesError, FleetTls
from controller.api.listeners import ListenerRules, Listeners
from controller.api.middleware.load import LoadLimits
from controller.api.server.server import SocketTaken
from controller.app.core import Core
from controller.app.e2b import start_e2b
from controller.app.engine import make_install_rules
from controller.app.errors import CannotStart
from controller.app.fleet_tls import make_fleet_tls
from controller.app.loop import LoopParts
from controller.app.previews import make_previews
from controller.app.secrets import HostSecrets
from controller.app.ssh import make_ssh
from controller.engine.engine import DockerEngine
from controller.engine.usage.cgroup import CgroupUsage
from controller.engine.usage.memory_folders import read_memory_folders
from controller.kinds.common.address import parse_address
from controller.kinds.observed.doctor import Finding
from controller.kinds.planning.binding import default_host
from controller.kinds.registry import discover
from controller.mcp.endpoint import McpEndpoint
from controller.mcp.servers.sessions import Sessions
from controller.metrics.registry import Registry
from controller.metrics.scrape_access import ScrapeAccessError, load_scrape_access
from controller.metrics.server import CannotListen, MetricsServer
from controller.policy.levels.levels import Policy
from controller.ports import Secrets
from controller.service.admission import admitting
from controller.service.fleet.locations import Locations
from controller.service.services import HostPorts, LoopPorts, ServiceLimits, Services, make_services
from controller.settings import Settings
from controller.store.sql_store import SqlStore


def services_of(
    core: Core, store: SqlStore, engine: DockerEngine, secrets: Secrets, policy: Policy, loop: LoopParts
) -> Services:
    """Build all use-cases for the listeners."""
    settings, canary = core.settings, loop.canary
    host = HostPorts(
        engine=engine,
        streams=engine.streams,
        files=engine.files,
        ports=engine.ports,
        agents=engine.agents,
        volumes=engine.kept_volumes,
        snapshots=engine.snapshots,
        images=engine.image_store,
        adopted_execs=engine.adopted_execs,
        secrets=secrets,
        secret_files=HostSecrets(settings),
        samples=loop.samples.now,
        layers=loop.layers.now,
        exec_folder=settings.state_dir / "execs",
        run_folder=settings.state_dir / "runs",
        models=core.models,
        usage=CgroupUsage(hold=False),
        folders=read_memory_folders,
        reached=settings.reached(),
    )
    limits = ServiceLimits(
        exec_rules=settings.exec_rules(),
        contexts=settings.contexts_per_sandbox,
        transfers=settings.transfer_limits(),
        connections=settings.port_limits(),
        images=settings.image_rules(),
        installs=make_install_rules(settings, store.instance_id),
        most_objects=settings.objects_per_namespace,
        workspace_bytes=settings.workspace_volume_bytes,
        most_annotation_bytes=settings.annotations_per_namespace_bytes,
        artifact_bytes=settings.artifacts_per_namespace_bytes,
    )
    return make_services(
        registry=discover(),
        store=store,
        clock=core.clock,
        admit=admitting(policy, engine.observe, lambda: canary.now, loop.place),
        host=host,
        loop=LoopPorts(
            core.waker.wake_for_write,
            core.last,
            in_use=loop.activity,
            watches=loop.watches,
            traces=core.traces,
            wake_soon=core.waker.wake_soon,
            place=loop.place,
        ),
        limits=limits,
        policy=policy,
        meter=core.meter,
    )


def start_listeners(
    core: Core, services: Services, store: SqlStore, engine: DockerEngine, loop: LoopParts, sessions: Sessions
) -> tuple[str, str, int]:
    """Start all listeners. Return the URLs of the TCP listener and of E2B's, and the metrics port.

    Raises CannotStart.
    """
    settings, reconcile_loop = core.settings, loop.reconcile_loop

    def ready() -> list[tuple[str, str]]:
        planned_on = core.last()
        blind = engine.observe().blind or (planned_on.observed.blind if planned_on else "")
        engine_check = [("engine", blind)] if settings.is_host else []
        return [("store", store.ping()), *engine_check, ("loop", reconcile_loop.failure)]

    sessions.start()
    services.mcp_installs.start()
    core.undo.callback(services.mcp_installs.close)
    core.undo.callback(sessions.close, 0)  # if the start fails; else they have ended before
    many = settings.scheduler != "single"
    default = default_host(settings.scheduler)
    locations = Locations(store, settings.place, default, settings.host_name) if many else None
    mcp_app = McpEndpoint(services, core.meter, sessions, locations.is_here if locations else None)
    forwarding, fleet_tls = _forwarding(settings, locations, mcp_app)
    load = LoadLimits(settings.requests_per_second, settings.requests_in_flight, settings.caller_share)
    load = load.with_lasting(transfers=settings.transfers, ports=settings.port_connections)
    e2b_url = start_e2b(core, services, store, load, locations)
    make = partial(
        create_app,
        services,
        ready=ready,
        meter=core.meter,
        load=load,
        mcp_app=mcp_app,
        examine=partial(_examine, settings),
        forwarding=forwarding,
        e2b_url=e2b_url,
        ssh_front=make_ssh(core, services, store),
        previews=make_previews(core, services, store),
    )
    core.undo.callback(services.recorder.flush)
    listeners = Listeners(_listener_rules(settings, fleet_tls), store.tokens, core.clock, lambda who: make(who=who))
    metrics = _metrics_server(settings, core.registry)
    try:
        core.undo.callback(listeners.stop)
        if forwarding is not None:
            core.undo.callback(forwarding.links.close)
        listeners.start()
        metrics.start()
        core.undo.callback(metrics.stop)
    except (SocketTaken, CannotListen) as error:
        raise CannotStart(str(error)) from error
    core.undo.callback(loop.watches.close)  # before the API stops: open watches would delay it
    return listeners.url, e2b_url, metrics.port


def _examine(settings: Settings) -> tuple[Finding, ...]:
    from controller.app.doctor import examine  # asked for once in a while: a daemon does without until then

    return examine(settings)


def _metrics_server(settings: Settings, registry: Registry) -> MetricsServer:
    try:
        access = load_scrape_access(
            settings.metrics_token_file, settings.metrics_tls_cert_file, settings.metrics_tls_key_file
        )
    except ScrapeAccessError as error:
        raise CannotStart(str(error)) from error
    return MetricsServer(registry, settings.metrics_host, settings.metrics_port, access.token, access.tls)


def _forwarding(
    settings: Settings, locations: Locations | None, mcp_app: McpEndpoint
) -> tuple[Forwarding | None, FleetTls | None]:
    """Return the way to sandboxes of other hosts; nothing if there is one host. Raises CannotStart."""
    if locations is None:
        return None, None
    try:
        tls = make_fleet_tls(settings)
    except FleetFilesError as error:
        raise CannotStart(str(error)) from error
    return Forwarding(locations, Links(tls), mcp_app.sandbox_of), tls


def _listener_rules(settings: Settings, fleet_tls: FleetTls | None) -> ListenerRules:
    socket = settings.socket if "api" in settings.roles else None
    rules = ListenerRules(socket, settings.socket_group, settings.socket_group_role, settings.access)
    rules = replace(rules, stall_seconds=settings.stall_seconds, share=settings.caller_share, host=settings.api_host)
    if settings.fleet_address:
        rules = replace(rules, fleet=parse_address(settings.fleet_address), fleet_tls=fleet_tls)
    if socket is None:
        return replace(rules, host="")
    return replace(rules, port=settings.api_port, cert=settings.tls_cert_file, key=settings.tls_key_file)
