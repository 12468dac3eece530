"""DockerEngine: ports.Engine over one Docker Engine. Assembles the modules of this package."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from controller.engine.act.actions import Actor
from controller.engine.docker.agent_runtimes import AgentRuntimes
from controller.engine.docker.bulkhead import hanging_message
from controller.engine.docker.client import Client
from controller.engine.docker.disk_quota_probe import DiskQuotaProbe
from controller.engine.docker.errors import Fault
from controller.engine.docker.networks import Networks
from controller.engine.docker.view import View
from controller.engine.exec.agent import AgentConnections
from controller.engine.exec.port_forward import DockerPorts
from controller.engine.exec.probes import DockerProbes
from controller.engine.exec.streams import DockerStreams
from controller.engine.files.files import DockerFiles
from controller.engine.images.accounts import Accounts
from controller.engine.images.image_store import DockerImages
from controller.engine.images.pull import Pulls, is_here
from controller.engine.images.recipe_builds import RecipeBuilds
from controller.engine.images.registries import Registries, Resolve, resolve_addresses
from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.engine_namespace import EngineNamespace
from controller.engine.kernel.kill import Killer
from controller.engine.mounts.credentials import CredentialFiles
from controller.engine.mounts.host_authorities import HostAuthorities
from controller.engine.mounts.host_mounts import DEFAULT_FOLDER, HostMounts
from controller.engine.mounts.saved_files import SavedFolders
from controller.engine.mounts.secrets import SecretFolder
from controller.engine.mounts.volumes import KeptVolumes, Volumes
from controller.engine.observe.canary import DockerCanary
from controller.engine.observe.events import NETWORK_EVENTS, EventStream, Inspector, container_events
from controller.engine.observe.guard_watch import GuardWatch
from controller.engine.observe.observer import OBSERVE_SECONDS, BackgroundObserver, Foreign, Observer
from controller.engine.observe.runtime_trial import RuntimeTrials
from controller.engine.observe.secret_watch import SecretWatch
from controller.engine.observe.use_marks import UseMarks
from controller.engine.snapshots.capture import Capturer
from controller.engine.snapshots.commit import Committer
from controller.engine.snapshots.folder import SnapshotFolder
from controller.engine.snapshots.layers import RootLayers
from controller.engine.snapshots.restore import Restorer
from controller.engine.snapshots.snapshots import DockerSnapshots
from controller.kinds.observed.observed import Container, HostFacts, Observation, State
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.kinds.planning.action import Action, BuildImage, RemoveContainer
from controller.kinds.planning.outcome import Ok, Outcome
from controller.kinds.runtime.mount import HostRoot
from controller.kinds.runtime.network import EnsureNetwork, RemoveNetwork
from controller.kinds.runtime.runtime_choice import DefaultRuntime
from controller.policy.images import ANY_IMAGE, ImageRules
from controller.ports import (
    AdoptedExecs,
    Agents,
    Clock,
    Files,
    Firewall,
    Meter,
    NotNow,
    NullMeter,
    PortForwarder,
    PortListener,
    Probes,
    Streams,
    Wake,
)

_PAUSES_SECONDS = (0.5, 5.0)


def _restorer(folder: Path, client: Client) -> Restorer:
    layers = RootLayers(EngineNamespace(client.base_url), is_local=_is_local(client.base_url))
    return Restorer(SnapshotFolder(folder), client, layers)


def _is_local(base_url: str) -> bool:
    return base_url.startswith(("unix:", "http+unix:"))


class DockerEngine:
    """The containers of one instance id on the engine at `base_url` (unix:///path or tcp://host:port).

    The constructor does no I/O. `clock` only stamps the view. `pauses_seconds` are the first and the longest pause
    between attempts to reach an engine that does not answer. `observe_seconds` bounds the wait for an answer about one
    container: without an answer the container is Unknown. Without a `firewall` nothing is guarded. Folders of the host
    may be bound from `host_roots`; they are mounted below `mounts_dir` first. Files that name a sandbox's user are in
    `users_dir` (None: there are none), snapshots in `snapshots_dir`. `builds_dir` is for the builds of Paddock's own
    images (None: none are built), and `authorities_dir` for the file of the host's authorities that sandboxes trust,
    too (None: they do not); marks of use are in `used_dir`, which outlives the host's start. `images` say which
    registries may be at addresses that are not public, and `resolve` returns those of a name. `hibernation` judges the
    host's swap before each hibernation. `saved` are the files in memory of suspended sandboxes. `default_runtime` is
    the setting of that name. Raises ValueError for a bad address.
    """

    def __init__(
        self,
        instance_id: str,
        *,
        base_url: str,
        clock: Clock,
        meter: Meter | None = None,
        call_timeout_seconds: float = 30.0,
        observe_seconds: float = OBSERVE_SECONDS,
        pauses_seconds: tuple[float, float] = _PAUSES_SECONDS,
        firewall: Firewall | None = None,
        gpus: tuple[str, ...] = (),
        host_roots: Sequence[HostRoot] = (),
        mounts_dir: Path = DEFAULT_FOLDER,
        secrets: SecretFolder | None = None,
        volumes: Volumes | None = None,
        users_dir: Path | None = None,
        used_dir: Path | None = None,
        builds_dir: Path | None = None,
        authorities_dir: Path | None = None,
        credentials: CredentialFiles | None = None,
        saved: SavedFolders | None = None,
        images: ImageRules = ANY_IMAGE,
        resolve: Resolve = resolve_addresses,
        hibernation: Callable[[int], HibernationAbility] = lambda _: UNKNOWN_ABILITY,
        snapshots_dir: Path | None = None,
        default_runtime: DefaultRuntime = "runc",
    ) -> None:
        meter, same_clock = meter or NullMeter(), _is_local(base_url)
        self._instance_id, self._hibernation, self._saved = instance_id, hibernation, saved
        self._client = Client(base_url, meter=meter, timeout_seconds=call_timeout_seconds)
        self._use_marks = UseMarks((used_dir or mounts_dir / "used") / instance_id)
        self._view, self._cgroups = View(clock, self._use_marks.has), Cgroups()
        self._networks = Networks(instance_id, self._client, self._view, firewall)
        self._restorer = _restorer(snapshots_dir or mounts_dir / "snapshots", self._client)
        sources = (secrets, volumes, credentials, saved, self._restorer)
        self._mounts = HostMounts(instance_id, self._client, *sources, folder=mounts_dir, roots=host_roots)
        self._agents = AgentRuntimes(self._client, self._view)
        self._accounts = Accounts(users_dir, base_url) if users_dir else None
        self._authorities = HostAuthorities(authorities_dir, base_url) if authorities_dir else None
        self._guard = GuardWatch(firewall, self._view, self._networks.read_rules)
        self._observer = self._make_observer(meter, observe_seconds)
        self._secret_watch = SecretWatch(self._mounts, self._observer, self._view)
        self._background = BackgroundObserver(self._observer, self._view, pauses_seconds=pauses_seconds)
        # Events carry the engine's time, which is comparable with ours only on one host.
        self._inspector = Inspector(self._observer, self._view, self._background, same_clock=same_clock)
        self._trials = RuntimeTrials(self._client, default_runtime, retry=self._renew_facts)
        self._facts = self._make_facts(gpus)
        self._events = self._make_event_streams(meter, pauses_seconds)
        self._streams = DockerStreams(
            instance_id, self._client, self._cgroups, self._observed_container, self._observer
        )
        self._probes, self.canary = DockerProbes(self._streams), DockerCanary(instance_id, self._client)
        self._files, self._ports = DockerFiles(self._cgroups), DockerPorts()
        agents = DockerPorts(ipv4_only=True)  # an agent listens there; what listens on ::1 alone is none
        self._agent_connections = AgentConnections(agents, Killer(self._cgroups))
        self._pulls, self._registries = Pulls(), Registries(self._client, images, resolve)
        self._builds = RecipeBuilds(partial(is_here, self._client), base_url, clock, builds_dir)
        self._snapshots = self._make_snapshots(clock, is_local=same_clock)
        self._actor, self._closing = self._make_actor(), threading.Lock()

    def _make_snapshots(self, clock: Clock, *, is_local: bool) -> DockerSnapshots:
        capturer = Capturer(
            *(self._observer, self._mounts, self._cgroups, clock.now, self._restorer.layers),
            committer=Committer(self._client, self._restorer.layers.free_bytes, self._instance_id),
            is_local=is_local,
        )
        return DockerSnapshots(self._restorer.folder, capturer, self._client, self._saved)

    def _make_observer(self, meter: Meter, observe_seconds: float) -> Observer:
        return Observer(
            instance_id=self._instance_id,
            client=self._client,
            view=self._view,
            cgroups=self._cgroups,
            networks=self._networks,
            read_guard=self._guard.read,
            meter=meter,
            mounts=self._mounts,
            use_marks=self._use_marks,
            observe_seconds=observe_seconds,
        )

    def _make_facts(self, gpus: tuple[str, ...]) -> Callable[[], HostFacts]:
        quota_probe, trials = DiskQuotaProbe(self._client), self._trials

        def facts() -> HostFacts:
            host_facts = trials.with_choice(quota_probe.with_disk(self._client.probe()))
            return replace(host_facts, gpus=gpus, agent=self._agents.image())

        return facts

    def _renew_facts(self) -> None:
        """Ask the engine about itself again: it has read its settings anew. Without an answer the facts stay."""
        with suppress(Fault):
            self._view.facts(self._facts())

    def _make_event_streams(self, meter: Meter, pauses_seconds: tuple[float, float]) -> Sequence[EventStream]:
        """Return one stream for the events of our containers, and one for those of networks."""
        return [
            EventStream(
                filters,
                self._client,
                self._view,
                background=self._background,
                inspector=self._inspector,
                meter=meter,
                pauses_seconds=pauses_seconds,
                facts=self._facts,
                images_changed=self._agents.observe_now,
                engine_changed=self._renew_facts,
            )
            for filters in (container_events(self._instance_id), NETWORK_EVENTS)
        ]

    def _make_actor(self) -> Actor:
        """Build the actor with its handlers of actions."""
        return Actor(
            self._instance_id,
            self._client,
            self._view,
            self._observer,
            background=self._background,
            cgroups=self._cgroups,
            other_actions={
                EnsureNetwork: self._networks.ensure,
                RemoveNetwork: self._networks.remove,
                BuildImage: lambda action: self._builds.ensure(action.image),
            },
            mounts=self._mounts,
            agents=self._agents,
            accounts=self._accounts,
            authorities=self._authorities,
            pulls=self._pulls,
            registries=self._registries,
            before_kill=self._streams.cut_stalled,
            pausing=self._streams.pausing,
            holding=self._inspector.holding,
            hibernation=self._hibernation,
            restorer=self._restorer,
            is_capturing=self._snapshots.is_capturing,
            renew_facts=self._renew_facts,
        )

    @property
    def image_store(self) -> DockerImages:
        """Paddock's own images on this engine."""
        return DockerImages(self._client, self._agents, self._pulls, self._registries)

    @property
    def streams(self) -> Streams:
        """Logs and commands of the sandboxes on this engine; closed with it."""
        return self._streams

    @property
    def adopted_execs(self) -> AdoptedExecs:
        """Commands that an earlier daemon started."""
        return self._streams.adopted_execs

    @property
    def kept_volumes(self) -> KeptVolumes:
        """Volumes on this host, to list and delete."""
        return self._mounts.kept

    @property
    def snapshots(self) -> DockerSnapshots:
        """Snapshots of the sandboxes on this engine."""
        return self._snapshots

    @property
    def files(self) -> Files:
        """Files of the sandboxes on this engine; closed with it."""
        return self._files

    @property
    def listeners(self) -> PortListener:
        """Listeners inside sandboxes."""
        return self._ports

    @property
    def ports(self) -> PortForwarder:
        """TCP ports of the sandboxes on this engine."""
        return self._ports

    @property
    def agents(self) -> Agents:
        """Agents in the sandboxes on this engine; closed with it."""
        return self._agent_connections

    @property
    def probes(self) -> Probes:
        """Probes of the sandboxes on this engine."""
        return self._probes

    def open(self, wake: Wake) -> None:
        self._view.on_change(wake)
        self._background.start()
        self._guard.start()
        self._secret_watch.start()
        self._inspector.start()
        for events in self._events:
            events.start()

    def close(self) -> None:
        with self._closing:
            for events in self._events:
                events.stop()
            self._trials.close()
            self._inspector.stop()
            self._background.stop()
            self._guard.stop()
            self._secret_watch.stop()
            self._streams.close()
            self._observer.close()
            self._files.close()
            self._agent_connections.close()
            self._mounts.close()
            self._client.close()

    def observe(self) -> Observation:
        return self._view.now

    def request_observation(self, *, full: bool = False) -> None:
        self._background.request(full=full)

    def observe_now(self, *, full: bool = False) -> Observation:
        if not self._observer.observe_now(full=full):
            self._background.request()  # retries until the view is no longer blind
        return self._view.now

    def observe_container(self, container_id: str) -> str:
        if self._hangs(container_id):
            return hanging_message(container_id)
        try:
            self._observer.read(container_id)
        except Foreign as error:
            return str(error)
        except Fault as fault:
            if fault.kind == "timeout":
                self._observer.doubt(container_id)
            return fault.message
        return ""

    def mark_used(self, container_id: str) -> None:
        try:
            self._use_marks.add(container_id)
        except OSError as error:
            problem = f"its use can't be recorded on this host: {error.strerror or error}"
            raise NotNow(f"container {container_id[:12]}: {problem}; try again in a moment") from error
        self._view.used(container_id)

    def act(self, action: Action) -> Outcome:
        outcome = self._actor.act(action)
        if isinstance(action, RemoveContainer) and not action.replaced and isinstance(outcome, Ok):
            self._release(action.uid)
        return outcome

    def _observed_container(self, container_id: str) -> Container | None:
        view_entry = self._view.entry_of(container_id)
        return view_entry.container if view_entry else None

    def _hangs(self, container_id: str) -> bool:
        """Tell whether the engine did not answer for it before; only the background observer retries then."""
        container = self._observed_container(container_id)
        return container is not None and container.state is State.UNKNOWN

    def _release(self, uid: str) -> None:
        """Release the mounts of an object, unless it has another container."""
        if not self._view.now.containers.get(uid):
            self._mounts.release(uid)
            if self._accounts is not None:
                self._accounts.remove(uid)

    def layer_bytes(self, container_id: str, timeout_seconds: float) -> int:
        """Return the size of a container's writable layer, as the engine counts it. Raises Fault."""
        return self._client.layer_bytes(container_id, timeout_seconds=timeout_seconds)

    def ping(self) -> str:
        try:
            self._client.call("ping", lambda api: api.ping())
        except Fault as fault:
            return fault.message
        return ""
