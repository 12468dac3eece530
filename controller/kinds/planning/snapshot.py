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


_NONE: Mapping[str, Instance] = MappingProxyType({})
_NO_QUOTAS: Mapping[str, StoredQuota] = MappingProxyType({})
_NO_PROFILES: Mapping[str, StoredProfile] = MappingProxyType({})
_NO_OBJECTS: Mapping[str, StoredObject] = MappingProxyType({})
_NOTHING: Mapping[str, Amount] = MappingProxyType({})
_NO_HOSTS: Mapping[str, StoredHost] = MappingProxyType({})
_NO_POOLS: Mapping[str, Pool] = MappingProxyType({})
_NO_PROVIDERS: Mapping[str, StoredProvider] = MappingProxyType({})
_NO_SERVERS: Mapping[str, StoredModelServer] = MappingProxyType({})


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
    elsewhere: Mapping[str, Amount] = field(default_factory=lambda: _NOTHING)
    """Amounts that other hosts reserve, by namespace."""
    pools_elsewhere: Mapping[str, Amount] = field(default_factory=lambda: _NOTHING)
    """Amounts that other hosts reserve of the pools with a part here (`pool_scope`, `replicas_scope`)."""
    leads: bool = True
    """This daemon also decides for what belongs to no host."""
    shares_store: bool = False
    """Other hosts write the store, too."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Input of one pass: what is desired, observed and stored. Mappings are keyed by the object's uid.

    Sandboxes, pools and instances are those bound to this host.
    """

    now: float
    """Time of the pass (Unix seconds)."""
    instance_id: str
    """Id of the store: `observed` has only containers that bear it."""
    sandboxes: Mapping[str, Sandbox]
    """Sandboxes of this host."""
    observed: Observation
    """Containers and networks, as the engine shows them."""
    instances: Mapping[str, Instance] = field(default_factory=lambda: _NONE)
    """Stored records of containers; keyed by their own uid, a sandbox's or a member's."""
    in_flight: frozenset[str] = frozenset()
    """Objects whose actions are being carried out: they are not planned."""
    results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    """Results of actions since the last stored pass."""
    pools: Mapping[str, Pool] = field(default_factory=lambda: _NO_POOLS)
    """Pools that have a part on this host."""
    probes: Mapping[str, ProbeState] = field(default_factory=lambda: MappingProxyType({}))
    """Results of the probes of current runs."""
    sweep: SweepRules = SweepRules()
    """Rules for containers without an object."""
    activity: Mapping[str, Activity] = field(default_factory=lambda: MappingProxyType({}))
    """Use that this daemon has seen; what is stored of it is in `instances`."""
    quotas: Mapping[str, StoredQuota] = field(default_factory=lambda: _NO_QUOTAS)
    """Quotas."""
    pressure: Pressure = NO_PRESSURE
    """Shortages of this host."""
    hibernation: HibernationAbility = UNKNOWN_ABILITY
    """Ability of this host to hibernate."""
    guarded: CanaryResult = UNWATCHED
    """Result of the canary, which tries the firewall from inside a network."""
    profiles: Mapping[str, StoredProfile] = field(default_factory=lambda: _NO_PROFILES)
    """Security profiles of the operator's."""
    layers: Mapping[str, LayerUsage] = field(default_factory=lambda: MappingProxyType({}))
    """Disk usage of containers as measured, by container id."""
    unresolved: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Hosts that sandboxes may reach, and that had no address when asked last."""
    drifted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Fields of its container that differed in the last pass, by object. Decides nothing."""
    shortages: tuple[Shortage, ...] = ()
    """Shortages of the last pass, for claims. No plan uses them."""
    objects: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Number of stored objects of every kind, by namespace."""
    providers: Mapping[str, StoredProvider] = field(default_factory=lambda: _NO_PROVIDERS)
    """Providers of models."""
    model_servers: Mapping[str, StoredModelServer] = field(default_factory=lambda: _NO_SERVERS)
    """Model servers."""
    gateway: GatewayView = NO_GATEWAY
    """State of the model gateway."""
    fleet: FleetView = FleetView()
    """This host among the others of its store."""

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
            if uid in self.sandboxes or self._is_member(uid):
                yield from containers

    def _is_member(self, uid: str) -> bool:
        instance = self.instances.get(uid)
        return instance is not None and bool(instance.member_uid) and instance.parent_uid in self.pools

    def pool_of(self, uid: str) -> str:
        """Return the pool that this sandbox was claimed from; "" if there is none, or it is gone."""
        instance = self.instances.get(uid)
        pool_uid = instance.state.claim.pool if instance else ""
        pool = self.pools.get(pool_uid) or next(
            (pool_part for pool_part in self._parts() if whole_uid(pool_part.obj) == pool_uid), None
        )
        return pool.obj.name if pool else ""

    def _parts(self) -> Iterable[Pool]:
        """Return the pools that may be parts of pools over several hosts: none where there is one host."""
        return self.pools.values() if self.fleet.shares_store else ()
