"""All use-cases over one set of ports: the fleet's, which need only the store, and those that need a sandbox's host."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.registry import Registry
from controller.kinds.runtime.agent import IMAGE as AGENT_IMAGE
from controller.kinds.runtime.context import MOST_CONTEXTS
from controller.policy.container.mounts import with_workspace_volume
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE as EGRESS_IMAGE
from controller.ports import (
    AdoptedExecs,
    Agents,
    Audit,
    Clock,
    Engine,
    Files,
    Images,
    Meter,
    Models,
    NullMeter,
    PortForwarder,
    SecretFiles,
    Secrets,
    Store,
    Streams,
    UsageReader,
    UseTracker,
    Volumes,
    Wake,
)
from controller.ports.fleet import NOT_REACHED, SINGLE, Fleet, Reached
from controller.ports.snapshots import Snapshots
from controller.service.access.access import bounding
from controller.service.access.audit import Recorder, auditing
from controller.service.access.token_admin import TokenAdmin
from controller.service.access.token_expiry import TokenExpirations
from controller.service.admission import Admit
from controller.service.backup import Backup
from controller.service.context.contexts import Contexts
from controller.service.exec.activity import ActivityTracker, NoAdoptedExecs, NoLoop
from controller.service.exec.agent_calls import AgentCalls, AgentHealth, NoAgents
from controller.service.exec.detached import Detached
from controller.service.exec.exec_deadline import EscapedProcesses, ExecDeadlines
from controller.service.exec.exec_limits import ExecRules
from controller.service.exec.exec_records import AttachedExecs, ExecRecords
from controller.service.exec.streams import SandboxStreams
from controller.service.explain.diff import Diff, LastSnapshot
from controller.service.explain.why import MemoryFolders, Why, no_folders
from controller.service.images.images import ImageService, ImageWorkRules, NoImages
from controller.service.mcp.installs import InstallPorts, InstallRules, Installs
from controller.service.mcp.pools import WarmPools
from controller.service.mcp.servers import McpServers
from controller.service.models.servers import ModelServers
from controller.service.models.use import ModelUse
from controller.service.objects.apply import Apply
from controller.service.objects.claims import Claims
from controller.service.objects.compose import Compose
from controller.service.objects.image_volumes import ImageVolumes
from controller.service.objects.objects import Objects
from controller.service.objects.patch import Patch
from controller.service.objects.pipeline import Pipeline
from controller.service.objects.secret_admin import NoSecretFiles, SecretAdmin
from controller.service.objects.write import Write
from controller.service.parsing import Parsing
from controller.service.plugin.objects import PluginObjects
from controller.service.sandbox.agent import SandboxAgent
from controller.service.sandbox.attest import Attest
from controller.service.sandbox.egress_log import EgressLogs
from controller.service.sandbox.files import NoFiles, SandboxFiles, TransferLimits
from controller.service.sandbox.folder_watch import FolderWatches
from controller.service.sandbox.inspect import Inspections
from controller.service.sandbox.port_forward import NoPorts, PortForward, PortLimits
from controller.service.sandbox.previous_log import PreviousLogs
from controller.service.sandbox.resume import Resume
from controller.service.sandbox.snapshots import NoSnapshots, SandboxSnapshots
from controller.service.sandbox.usage import LastSamples, Layers, Usages
from controller.service.sandbox.usage_history import UsageHistory
from controller.service.sources.all import make_sources
from controller.service.sources.volume import NoVolumes
from controller.service.trace import Traces, traced
from controller.service.watch.announce import announcing
from controller.service.watch.hub import Watches
from controller.service.workflow.agent import AgentWorker, NoModels
from controller.service.workflow.bridge import Bridge
from controller.service.workflow.files import RunFiles
from controller.service.workflow.projects import Projects
from controller.service.workflow.runs import Runs
from controller.service.workflow.stages import Commands, CopyWorker, ExecWorker, Outputs, StageWorker
from controller.service.workflow.usage import SandboxMeter
from controller.service.workflow.work import RunStages


@dataclass(frozen=True, slots=True)
class HostPorts:
    """The ports of this host, for the use-cases of its sandboxes. An absent port refuses every request."""

    engine: Engine
    """Containers."""
    streams: Streams
    """Commands and shells in containers."""
    files: Files = field(default_factory=NoFiles)
    """Files in sandboxes."""
    ports: PortForwarder = field(default_factory=NoPorts)
    """Connections to ports of sandboxes."""
    volumes: Volumes = field(default_factory=NoVolumes)
    """Volumes, with their use."""
    snapshots: Snapshots = field(default_factory=NoSnapshots)
    """Snapshots' files."""
    images: Images = field(default_factory=NoImages)
    """Images: pulls, builds, removals."""
    agents: Agents = field(default_factory=NoAgents)
    """Agents in sandboxes."""
    adopted_execs: AdoptedExecs = field(default_factory=NoAdoptedExecs)
    """Finds processes of detached commands after a restart."""
    secrets: Secrets | None = None
    """Operator's secrets; None: there is no folder of them."""
    secret_files: SecretFiles = field(default_factory=NoSecretFiles)
    """Their files: listed, and written."""
    samples: LastSamples = dict
    """Returns the last usage of each container."""
    layers: Layers = dict
    """Returns the size of each container's writable layer."""
    exec_folder: Path | None = None
    """Folder with the records of detached commands."""
    run_folder: Path | None = None
    """Folder with the files of workflow runs."""
    models: Models = field(default_factory=NoModels)
    """Models of the agents in workflow runs."""
    usage: UsageReader | None = None
    """Reads what a stage used."""
    reached: Reached = NOT_REACHED
    """Address at which others reach this daemon."""
    folders: MemoryFolders = no_folders
    """Returns the use of a container's in-memory folders now."""


@dataclass(frozen=True, slots=True)
class LoopPorts:
    """The connections between the use-cases and the reconcile loop.

    `wake` is called after each write; `wake_soon`, if given, after each use of a sandbox. `snapshot` gives the last one
    that the loop planned on. `in_use` counts open streams, for the idle clock. `watches` is the hub that hears of the
    loop's commits too (without one it is made). `traces` keeps which request wrote which generation, for the loop's log
    lines. `place` is this host among those of the store.
    """

    wake: Wake
    snapshot: LastSnapshot = lambda: None
    in_use: UseTracker = field(default_factory=NoLoop)
    watches: Watches | None = None
    traces: Traces = field(default_factory=Traces)
    wake_soon: Wake | None = None
    place: Fleet = SINGLE


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The settings' limits."""

    exec_rules: ExecRules = field(default_factory=ExecRules)
    """Time, output and number of commands."""
    transfers: TransferLimits = field(default_factory=TransferLimits)
    """Size and number of file transfers."""
    connections: PortLimits = field(default_factory=PortLimits)
    """Number of connections to ports."""
    images: ImageWorkRules = field(default_factory=ImageWorkRules)
    """Pulls and builds: number, size, time."""
    installs: InstallRules = field(default_factory=InstallRules)
    """Installs of MCP servers' packages."""
    contexts: int = MOST_CONTEXTS
    """Number of code contexts that a sandbox may have."""
    workspace_bytes: int = 0
    """Size of the volume that new sandboxes with a writable root have as their workspace; 0: none."""
    most_objects: int = 0
    """Number of objects in a namespace whose quotas give no bound; 0: no bound."""
    most_annotation_bytes: int = 0
    """Bytes of annotations in such a namespace; 0: no bound."""
    artifact_bytes: int = 1 << 30
    """Bytes of a workflow run's artifacts."""


@dataclass(frozen=True, kw_only=True)
class FleetServices:
    """The use-cases that need the store and no host: they serve every sandbox, wherever it runs."""

    registry: Registry
    """Kinds by name."""
    apply: Apply
    """Stores documents: `apply`, and its dry run."""
    compose: Compose
    """Turns Compose files into documents."""
    objects: Objects
    """Reads and deletes objects."""
    diff: Diff
    """Compares documents with stored objects."""
    patch: Patch
    """Changes parts of objects."""
    write: Write
    """Creates and replaces objects."""
    watches: Watches
    """Feeds watches of objects."""
    plugins: PluginObjects
    """Reads plugins, and turns them on and off."""
    tokens: TokenAdmin
    """Issues and revokes API tokens."""
    token_expirations: TokenExpirations
    """Ends open streams of tokens that expire or are revoked."""
    audit: Audit
    """Reads the audit log."""
    recorder: Recorder
    """Writes the audit log, and what sandboxes are used for."""
    parsing: Parsing
    """Parses large bodies, one at a time."""
    backup: Backup
    """Copies the store."""


@dataclass(frozen=True, kw_only=True)
class SandboxServices:
    """The use-cases that need the host that runs the sandbox."""

    sandbox_streams: SandboxStreams
    """Runs commands and shells."""
    agent: SandboxAgent
    """Asks the agent of a sandbox."""
    contexts: Contexts
    """Runs code in contexts that keep their variables."""
    previous: PreviousLogs
    """Reads the log of the run before."""
    egress_logs: EgressLogs
    """Reads what a sandbox asked its proxy for."""
    detached: Detached
    """Runs commands that outlive their request."""
    inspections: Inspections
    """Shows the container of a sandbox."""
    files: SandboxFiles
    """Reads and writes files."""
    folder_watches: FolderWatches
    """Follows changes in folders."""
    snapshots: SandboxSnapshots
    """Forks sandboxes, and takes them back to a snapshot."""
    forward: PortForward
    """Connects to ports."""
    usages: Usages
    """Measures sandboxes."""
    usage_history: UsageHistory
    secrets: SecretAdmin
    """Their files: listed, and written."""
    attest: Attest
    """Compares what is enforced with what was asked for."""
    why: Why
    """Explains the state of an object."""
    images: ImageService
    """Pulls, builds and removes images."""
    mcp_servers: McpServers
    """Reads MCP servers, and turns them on and off."""
    mcp_installs: Installs
    """Installs MCP servers' packages."""
    model_servers: ModelServers
    """Starts and stops model servers."""
    model_use: ModelUse
    """Counts the use of models."""
    run_stages: RunStages
    """Carries out the stages of workflow runs."""
    runs: Runs
    """Runs workflows."""
    bridge: Bridge
    """Runs one stage for one request, and answers with its files."""
    projects: Projects
    """Opens and closes projects: a sandbox and its template by one name."""


@dataclass(frozen=True, kw_only=True)
class Services(FleetServices, SandboxServices):
    """Both bundles, for a daemon that is the fleet's and its own host's."""


def make_services(
    *,
    registry: Registry,
    store: Store,
    clock: Clock,
    admit: Admit,
    host: HostPorts,
    loop: LoopPorts,
    limits: ServiceLimits | None = None,
    policy: Policy | None = None,
    meter: Meter | None = None,
    new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> Services:
    """Build the use-cases; starts nothing. `policy` is the operator's, without the facts of the host."""
    watches, limits, policy = loop.watches or Watches(store, clock), limits or ServiceLimits(), policy or Policy()

    def facts() -> HostFacts:
        return host.engine.observe().facts

    store = auditing(traced(announcing(store, watches.notify), loop.traces), clock, meter)
    pipeline = Pipeline(
        store=store,
        registry=registry,
        admit=bounding(admit, lambda: policy),
        wake=loop.wake,
        clock=clock,
        new_uid=new_uid,
        claims=Claims(loop.snapshot, meter or NullMeter(), facts=facts, clock=clock, policy=policy, place=loop.place),
        facts=facts,
        most_objects=limits.most_objects,
        most_annotation_bytes=limits.most_annotation_bytes,
        place=loop.place,
        defaults=_defaults(policy, limits.workspace_bytes),
    )
    sources = make_sources(
        store,
        host.engine,
        loop.snapshot,
        clock=clock,
        volumes=host.volumes,
        policy=policy,
        place=loop.place,
        reached=host.reached,
    )
    objects = Objects(store=store, registry=registry, wake=loop.wake, clock=clock, sources=sources)
    fleet = make_fleet(
        pipeline,
        objects,
        watches,
        snapshot=loop.snapshot,
        policy=policy,
        meter=meter,
        patch=Patch(pipeline, sources),
        images=host.images,
    )
    calls = AgentCalls(store=store, agents=host.agents, clock=clock, meter=meter)
    sandbox = make_sandbox(
        pipeline, objects, host, loop=loop, limits=limits, policy=policy, calls=calls, fleet=fleet, meter=meter
    )
    return Services(**vars(fleet), **vars(sandbox))


def _defaults(policy: Policy, workspace_bytes: int) -> Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None:
    """Return what completes the specs of new objects; None: nothing does."""
    if not workspace_bytes:
        return None
    return lambda kind, spec: with_workspace_volume(kind, spec, policy, workspace_bytes)


def make_fleet(
    pipeline: Pipeline,
    objects: Objects,
    watches: Watches,
    snapshot: LastSnapshot,
    policy: Policy,
    meter: Meter | None,
    patch: Patch,
    images: Images,
) -> FleetServices:
    """Build the use-cases over the store that the pipeline writes to."""
    store, clock = pipeline.store, pipeline.clock
    apply = Apply(pipeline, meter, ImageVolumes(images, store))
    token_expirations = TokenExpirations(clock, store.tokens.all if pipeline.place.shares_store else None)
    return FleetServices(
        registry=pipeline.registry,
        apply=apply,
        compose=Compose(apply, objects, pipeline.registry),
        objects=objects,
        diff=Diff(apply=apply, store=store, clock=clock, snapshot=snapshot, policy=policy, place=pipeline.place),
        patch=patch,
        write=Write(pipeline),
        watches=watches,
        plugins=PluginObjects(apply, objects, store, pipeline.registry),
        tokens=TokenAdmin(store.tokens, clock, token_expirations),
        token_expirations=token_expirations,
        audit=store.audit,
        recorder=Recorder(store.audit, clock, meter),
        parsing=Parsing(),
        backup=Backup(store, clock, meter),
    )


def make_sandbox(
    pipeline: Pipeline,
    objects: Objects,
    host: HostPorts,
    loop: LoopPorts,
    limits: ServiceLimits,
    policy: Policy,
    calls: AgentCalls,
    fleet: FleetServices,
    meter: Meter | None = None,
) -> SandboxServices:
    """Build the use-cases of the sandboxes on this host."""
    store, clock, engine, streams, recorder = pipeline.store, pipeline.clock, host.engine, host.streams, fleet.recorder
    records = ExecRecords(host.exec_folder, limits.exec_rules.output_bytes)
    sandbox_streams = _sandbox_streams(
        pipeline, objects, host, loop=loop, limits=limits, calls=calls, attached=AttachedExecs(records, clock)
    )
    forward = PortForward(sandbox_streams, host.ports, limits.connections)
    files = SandboxFiles(sandbox_streams, host.files, limits.transfers)
    images = ImageService(host.images, policy.images, limits.images, recorder, pipeline.registry)
    mcp_servers = _mcp_servers(pipeline, objects, host, sandbox_streams)
    ports = InstallPorts(objects, Write(pipeline), engine, images, sandbox_streams, files, mcp_servers)
    contexts = Contexts(sandbox_streams, calls, recorder, meter or NullMeter(), loop.in_use, limits.contexts)
    run_stages, runs, bridge = make_runs(pipeline, objects, host, limits, sandbox_streams, files)
    return SandboxServices(
        sandbox_streams=sandbox_streams,
        agent=SandboxAgent(sandbox_streams, calls, recorder),
        contexts=contexts,
        previous=PreviousLogs(objects=objects, store=store, streams=streams, sandbox_streams=sandbox_streams),
        egress_logs=EgressLogs(objects=objects, engine=engine, streams=streams),
        detached=Detached(
            objects=objects, sandbox_streams=sandbox_streams, clock=clock, records=records, registry=pipeline.registry
        ),
        inspections=Inspections(
            objects=objects, store=store, engine=engine, streams=streams, sandbox_streams=sandbox_streams
        ),
        files=files,
        folder_watches=FolderWatches(sandbox_streams, calls),
        snapshots=SandboxSnapshots(pipeline, objects, host.snapshots),
        forward=forward,
        usage_history=UsageHistory(host.samples, clock.now),
        usages=Usages(objects, host.samples, _host_name(loop), folders=host.folders, layers=host.layers),
        attest=Attest(objects=objects, engine=engine, clock=clock, snapshot=loop.snapshot, policy=policy),
        why=_make_why(pipeline, objects, loop, policy, host, partial(_agent_health, calls, sandbox_streams), contexts),
        mcp_servers=mcp_servers,
        mcp_installs=Installs(ports, policy, limits.installs),
        model_servers=ModelServers(objects, fleet.apply, sandbox_streams, forward, loop.in_use, loop.place),
        model_use=ModelUse(objects, loop.snapshot),
        images=images,
        run_stages=run_stages,
        runs=runs,
        bridge=bridge,
        projects=_projects(pipeline, objects, loop, images),
        secrets=SecretAdmin(host.secret_files, objects, pipeline.registry, recorder),
    )


def _agent_health(calls: AgentCalls, streams: SandboxStreams, obj: StoredObject) -> AgentHealth:
    return calls.health(obj, streams.observed_container(obj))


def _host_name(loop: LoopPorts) -> str:
    """Return this host's name among others; "": there are none."""
    return loop.place.within(loop.place.host) or ""


def _projects(pipeline: Pipeline, objects: Objects, loop: LoopPorts, images: ImageService) -> Projects:
    return Projects(
        *(objects, Write(pipeline), Patch(pipeline), pipeline.wake, loop.in_use, pipeline.clock),
        has_agent=partial(images.has, AGENT_IMAGE),
        has_network=lambda: _has_network(loop, images),
    )


def _has_network(loop: LoopPorts, images: ImageService) -> bool:
    """Return True if the host guards networks now, and has the proxy of sealed ones."""
    last = loop.snapshot()
    if last is None or last.observed.unguarded or last.host.canary.broken:
        return False
    return images.has(EGRESS_IMAGE)


def _make_why(
    pipeline: Pipeline,
    objects: Objects,
    loop: LoopPorts,
    policy: Policy,
    host: HostPorts,
    agent: Callable[[StoredObject], AgentHealth],
    contexts: Contexts,
) -> Why:
    return Why(
        objects=objects,
        store=pipeline.store,
        clock=pipeline.clock,
        snapshot=loop.snapshot,
        policy=policy,
        agent=agent,
        contexts=contexts.facts,
        folders=host.folders,
        place=pipeline.place,
    )


def _sandbox_streams(
    pipeline: Pipeline,
    objects: Objects,
    host: HostPorts,
    loop: LoopPorts,
    limits: ServiceLimits,
    calls: AgentCalls,
    attached: AttachedExecs,
) -> SandboxStreams:
    """Build what execs, files, logs and ports go through."""
    wake_now = loop.wake_soon and loop.wake
    return SandboxStreams(
        objects=objects,
        engine=host.engine,
        streams=host.streams,
        activity=ActivityTracker(
            in_use=loop.in_use,
            engine=host.engine,
            wake=loop.wake_soon or loop.wake,
            wake_now=wake_now,
            resume=Resume(Patch(pipeline)),
        ),
        rules=limits.exec_rules,
        escapes=EscapedProcesses(store=pipeline.store, engine=host.engine, clock=pipeline.clock),
        adopted=host.adopted_execs,
        deadlines=ExecDeadlines(pipeline.store, limits.exec_rules),
        secrets=host.secrets,
        agents=calls,
        attached=attached,
    )


def _mcp_servers(pipeline: Pipeline, objects: Objects, host: HostPorts, sandbox_streams: SandboxStreams) -> McpServers:
    store, clock, write = pipeline.store, pipeline.clock, Write(pipeline)
    return McpServers(
        objects=objects,
        write=write,
        store=store,
        clock=clock,
        engine=host.engine,
        sandbox_streams=sandbox_streams,
        pools=WarmPools(objects, Apply(pipeline)),
        images=host.images,
        place=pipeline.place,
    )


def make_runs(
    pipeline: Pipeline,
    objects: Objects,
    host: HostPorts,
    limits: ServiceLimits,
    sandbox_streams: SandboxStreams,
    files: SandboxFiles,
) -> tuple[RunStages, Runs, Bridge]:
    """Build the work of workflow runs, and the requests about them."""
    folder = host.run_folder
    detached = Detached(
        objects=objects,
        sandbox_streams=sandbox_streams,
        clock=pipeline.clock,
        records=ExecRecords(folder / "commands" if folder else None, limits.exec_rules.output_bytes),
        registry=pipeline.registry,
        evict=False,
        on_end=lambda command: stages.command_ended(command.id),
    )
    run_files = RunFiles(folder / "files" if folder else None, limits.artifact_bytes)
    commands, outputs = Commands(detached), Outputs(files)
    workers: dict[str, StageWorker] = {
        "exec": ExecWorker(commands, outputs),
        "copy": CopyWorker(files, run_files, outputs),
        "agent": AgentWorker(host.models, commands, files, run_files, outputs),
    }
    stages = RunStages(
        objects=objects,
        write=Write(pipeline),
        files=run_files,
        detached=detached,
        workers=workers,
        meter=SandboxMeter(objects, host.engine, host.usage),
    )
    bridge = Bridge(
        objects=objects,
        write=Write(pipeline),
        files=run_files,
        commands=commands,
        sandbox_files=files,
        place=pipeline.place,
    )
    return stages, Runs(objects, run_files, commands), bridge
