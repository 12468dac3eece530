"""Input of one planner pass: desired, observed and stored state, and the time. Immutable."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from controller.kinds.host import NAME, StoredHost
from controller.kinds.meta import StoredObject
from controller.kinds.modelserver import StoredModelServer
from controller.kinds.observed.activity import Activity
from controller.kinds.observed.canary import UNWATCHED, CanaryResult
from controller.kinds.observed.models import NO_GATEWAY, GatewayView
from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.observed.pressure import NONE as NO_PRESSURE
from controller.kinds.observed.pressure import Pressure
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.kinds.observed.usage import LayerUsage
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.outcome import Outcome
from controller.kinds.planning.plan import Shortage
from controller.kinds.provider import StoredProvider
from controller.kinds.quota import Amount, StoredQuota
from controller.kinds.runtime.probe import ProbeState
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.sandboxpool import SandboxPoolSpec, whole_uid
from controller.kinds.securityprofile import StoredProfile


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A stored Sandbox with its spec parsed, and the template that it names or holds (None: missing).

    `broken` says why this version can't read the stored spec. Unknown fields are a reason: run without them, the
    sandbox could be less isolated than requested.
    """

    obj: StoredObject
    spec: SandboxSpec | None
    template: Template | None = None
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """A stored SandboxPool with its spec parsed, and its template at that template's generation (None: missing).

    `broken` says why this version can't read the stored spec.
    """

    obj: StoredObject
    spec: SandboxPoolSpec | None
    template: Template | None = None
    template_generation: int = 0
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one object's group of actions: the finished pairs, in order; the last may have failed."""

    uid: str
    generation: int
    deleting: bool
    done: tuple[tuple[Action, Outcome], ...]


@dataclass(frozen=True, slots=True)
class SweepRules:
    """Rules for removing containers without an object.

    They are removed after `grace_seconds`, at most a `share` of our containers at a time (but always one). `withheld`
    says why none is removed ("": they may be).
    """

    grace_seconds: float = 60.0
    share: float = 0.2
    withheld: str = ""


_NO_INSTANCES: Mapping[str, Instance] = MappingProxyType({})
_NO_SANDBOXES: Mapping[str, Sandbox] = MappingProxyType({})
_NO_POOLS: Mapping[str, Pool] = MappingProxyType({})
_NO_QUOTAS: Mapping[str, StoredQuota] = MappingProxyType({})
_NO_PROFILES: Mapping[str, StoredProfile] = MappingProxyType({})
_NO_PROVIDERS: Mapping[str, StoredProvider] = MappingProxyType({})
_NO_SERVERS: Mapping[str, StoredModelServer] = MappingProxyType({})
_NO_OBJECTS: Mapping[str, StoredObject] = MappingProxyType({})
_NO_AMOUNTS: Mapping[str, Amount] = MappingProxyType({})
_NO_HOSTS: Mapping[str, StoredHost] = MappingProxyType({})
_NO_COUNTS: Mapping[str, int] = MappingProxyType({})
_NO_PROBES: Mapping[str, ProbeState] = MappingProxyType({})
_NO_ACTIVITY: Mapping[str, Activity] = MappingProxyType({})
_NO_LAYERS: Mapping[str, LayerUsage] = MappingProxyType({})
_NO_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_NO_RESULTS: Mapping[str, Result] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """Stored objects that this host carries out, as they are to be. By uid."""

    sandboxes: Mapping[str, Sandbox] = field(default_factory=lambda: _NO_SANDBOXES)
    """Sandboxes of this host."""
    pools: Mapping[str, Pool] = field(default_factory=lambda: _NO_POOLS)
    """Pools that have a part on this host."""


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """Limits of what may be done: the operator's objects, by uid, and the rules for what has no object."""

    quotas: Mapping[str, StoredQuota] = field(default_factory=lambda: _NO_QUOTAS)
    """Quotas of namespaces and of the host."""
    object_counts: Mapping[str, int] = field(default_factory=lambda: _NO_COUNTS)
    """Number of stored objects of every kind, by namespace: quotas limit it."""
    profiles: Mapping[str, StoredProfile] = field(default_factory=lambda: _NO_PROFILES)
    """Security profiles."""
    sweep: SweepRules = SweepRules()
    """Rules for removing containers without an object."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """Stored objects of the model gateway, by uid, and its state."""

    providers: Mapping[str, StoredProvider] = field(default_factory=lambda: _NO_PROVIDERS)
    """Providers of models."""
    servers: Mapping[str, StoredModelServer] = field(default_factory=lambda: _NO_SERVERS)
    """Model servers."""
    gateway: GatewayView = NO_GATEWAY
    """State of the gateway."""


@dataclass(frozen=True, slots=True)
class HostView:
    """State of this host, beside its containers and networks."""

    pressure: Pressure = NO_PRESSURE
    """Shortages."""
    hibernation: HibernationAbility = UNKNOWN_ABILITY
    """Ability to hibernate."""
    canary: CanaryResult = UNWATCHED
    """Result of the canary, which tries the firewall from inside a network."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Knowledge of current runs that this daemon has beside what the engine shows."""

    probes: Mapping[str, ProbeState] = field(default_factory=lambda: _NO_PROBES)
    """Results of probes, by uid."""
    activity: Mapping[str, Activity] = field(default_factory=lambda: _NO_ACTIVITY)
    """Use that this daemon has seen, by uid; what is stored of it is in the instances."""
    layers: Mapping[str, LayerUsage] = field(default_factory=lambda: _NO_LAYERS)
    """Disk usage of containers as measured, by container id."""
    unresolved_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_NAMES)
    """Hosts that a sandbox may reach, and that had no address when asked last, by uid."""


@dataclass(frozen=True, slots=True)
class PassProgress:
    """Actions between this pass and the last, and what that one left undone. By uid."""

    in_flight: frozenset[str] = frozenset()
    """Objects whose actions are being carried out: they are not planned."""
    results: Mapping[str, Result] = field(default_factory=lambda: _NO_RESULTS)
    """Results of actions since the last stored pass."""
    drifted: Mapping[str, int] = field(default_factory=lambda: _NO_COUNTS)
    """Fields of its container that differed in the last pass, by object. Decides nothing."""
    shortages: tuple[Shortage, ...] = ()
    """Shortages of the last pass, for claims. No plan uses them."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """This host among the others of its store. The default is that of the only one."""

    hosts: Mapping[str, StoredHost] = field(default_factory=lambda: _NO_HOSTS)
    """Hosts whose spec or labels somebody changed."""
    host: str = NAME
    """Name of this host."""
    unbound: Mapping[str, StoredObject] = field(default_factory=lambda: _NO_OBJECTS)
    """Sandboxes and pools without a host."""
    untemplated: frozenset[str] = frozenset()
    """Uids of the unbound ones whose template is missing."""
    waits: Mapping[str, tuple[str, str]] | None = None
    """Reason and message why they have none; None: no scheduler chooses hosts."""
    moved_uids: frozenset[str] = frozenset()
    """Sandboxes of other hosts that have a container here."""
    unmoved_uids: frozenset[str] = frozenset()
    """Moved ones whose host was never this one."""
    elsewhere: Mapping[str, Amount] = field(default_factory=lambda: _NO_AMOUNTS)
    """Amounts that other hosts reserve, by namespace."""
    pools_elsewhere: Mapping[str, Amount] = field(default_factory=lambda: _NO_AMOUNTS)
    """Amounts that other hosts reserve of the pools with a part here (`pool_scope`, `replicas_scope`)."""
    leads: bool = True
    """This daemon also decides for what belongs to no host."""
    shares_store: bool = False
    """Other hosts write the store, too."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Input of one pass: what is desired, observed and stored, as records by subject."""

    now: float
    """Time of the pass (Unix seconds)."""
    instance_id: str
    """Id of the store: `observed` has only containers that bear it."""
    desired: DesiredObjects
    """Sandboxes and pools of this host, as they are to be."""
    observed: Observation
    """Containers and networks, as the engine shows them."""
    instances: Mapping[str, Instance] = field(default_factory=lambda: _NO_INSTANCES)
    """Stored records of this host's containers; keyed by their own uid, a sandbox's or a member's."""
    measured: Measurements = Measurements()
    """Probes, use and sizes of what runs."""
    rules: PlanningRules = PlanningRules()
    """Quotas, profiles, and rules for what has no object."""
    host: HostView = HostView()
    """State of this host."""
    models: ModelView = ModelView()
    """Providers, model servers and their gateway."""
    fleet: FleetView = FleetView()
    """This host among the others of its store."""
    progress: PassProgress = PassProgress()
    """Actions in flight and done."""

    def alive(self) -> list[Container]:
        """Return running containers whose object is known: a sandbox or an unclaimed pool member.

        A paused container still holds its memory and its counters.
        """
        return [
            container for container in self._observed_containers() if container.state in (State.RUNNING, State.PAUSED)
        ]

    def measurable(self) -> list[Container]:
        """Return running containers, and as such those that had a process and can't be looked at now.

        Their figures are read without the engine; a process that has ended meanwhile has none.
        """
        unread = (
            container for container in self._observed_containers() if container.state is State.UNKNOWN and container.pid
        )
        return [*self.alive(), *(replace(container, state=State.RUNNING) for container in unread)]

    def _observed_containers(self) -> Iterator[Container]:
        for uid, containers in self.observed.containers.items():
            if uid in self.desired.sandboxes or self._is_member(uid):
                yield from containers

    def _is_member(self, uid: str) -> bool:
        instance = self.instances.get(uid)
        return instance is not None and bool(instance.member_uid) and instance.parent_uid in self.desired.pools

    def pool_of(self, uid: str) -> str:
        """Return the pool that this sandbox was claimed from; "" if there is none, or it is gone."""
        instance = self.instances.get(uid)
        pool_uid = instance.state.claim.pool if instance else ""
        pool = self.desired.pools.get(pool_uid) or next(
            (pool_part for pool_part in self._parts() if whole_uid(pool_part.obj) == pool_uid), None
        )
        return pool.obj.name if pool else ""

    def _parts(self) -> Iterable[Pool]:
        """Return the pools that may be parts of pools over several hosts: none where there is one host."""
        return self.desired.pools.values() if self.fleet.shares_store else ()
