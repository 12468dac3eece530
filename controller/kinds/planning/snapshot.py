"""All that one pass of the planner looks at: desired, observed, remembered, and now. Immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from controller.kinds.meta import StoredObject
from controller.kinds.observed.activity import Activity
from controller.kinds.observed.canary import UNWATCHED, Guarded
from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.observed.pressure import NONE as NO_PRESSURE
from controller.kinds.observed.pressure import Pressure
from controller.kinds.observed.usage import Layer
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.outcome import Outcome
from controller.kinds.planning.plan import Shortage
from controller.kinds.quota import StoredQuota
from controller.kinds.runtime.probe import Probed
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.kinds.securityprofile import StoredProfile


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A stored Sandbox with its spec parsed, and the template that it names or holds (None: it is not there).

    `broken` is why the stored spec cannot be read by this version. A spec with fields that it does not know is one:
    run without them, the sandbox could be weaker than was asked.
    """

    obj: StoredObject
    spec: SandboxSpec | None
    template: Template | None = None
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """A stored SandboxPool, its spec parsed, and the template it names at that template's generation (None: not there).

    `broken` is why the stored spec cannot be read by this version.
    """

    obj: StoredObject
    spec: SandboxPoolSpec | None
    template: Template | None = None
    template_generation: int = 0
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one object's group of actions: the pairs carried out, in order; the last may have failed."""

    uid: str
    generation: int
    deleting: bool
    done: tuple[tuple[Action, Outcome], ...]


@dataclass(frozen=True, slots=True)
class SweepRules:
    """When containers without an object are removed: after `grace_seconds` of being seen so, and in one sweep no more
    than `share` of our containers (but one in any case). `withheld` is why none is removed ("" when they may be).
    """

    grace_seconds: float = 60.0
    share: float = 0.2
    withheld: str = ""


_NONE: Mapping[str, Instance] = MappingProxyType({})
_NO_QUOTAS: Mapping[str, StoredQuota] = MappingProxyType({})
_NO_PROFILES: Mapping[str, StoredProfile] = MappingProxyType({})
_NO_POOLS: Mapping[str, Pool] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pass's input. `now` is Unix seconds; every mapping is keyed by the object's uid.

    An instance's is its own: that of the sandbox it belongs to, or of the pool's member it is.

    `in_flight` are objects whose actions are being carried out: they are not planned. `results` came in since the
    last pass that was stored. `instance_id` is the store's: only containers that bear it are in `observed`. `probes` is
    what the probes of a run came to, for objects that are probed.
    `activity` is what this daemon has seen of each object's use; what the store keeps of it is in `instances`.
    `profiles` are the operator's own security profiles.
    `pressure` is of what the machine is short. `layers` is what containers have written to disk, by their id, as far
    as it was measured. `guarded` is what the canary found. `drifted` counts the fields in which an object's container
    differed when it was decided last, where it did; nothing is decided by it. `shortages` are what sandboxes waited for
    when they were decided last: a claim goes by them, no plan does.
    """

    now: float
    instance_id: str
    sandboxes: Mapping[str, Sandbox]
    observed: Observation
    instances: Mapping[str, Instance] = field(default_factory=lambda: _NONE)
    in_flight: frozenset[str] = frozenset()
    results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    pools: Mapping[str, Pool] = field(default_factory=lambda: _NO_POOLS)
    probes: Mapping[str, Probed] = field(default_factory=lambda: MappingProxyType({}))
    sweep: SweepRules = SweepRules()
    activity: Mapping[str, Activity] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Mapping[str, StoredQuota] = field(default_factory=lambda: _NO_QUOTAS)
    pressure: Pressure = NO_PRESSURE
    guarded: Guarded = UNWATCHED
    profiles: Mapping[str, StoredProfile] = field(default_factory=lambda: _NO_PROFILES)
    layers: Mapping[str, Layer] = field(default_factory=lambda: MappingProxyType({}))
    drifted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    shortages: tuple[Shortage, ...] = ()

    def alive(self) -> list[Container]:
        """Containers that run now and whose object is known: a sandbox, or a pool's member, which is nobody's yet.

        A frozen container still holds its memory and its counters.
        """
        return [
            container
            for uid, containers in self.observed.containers.items()
            if uid in self.sandboxes or self._is_member(uid)
            for container in containers
            if container.state in (State.RUNNING, State.PAUSED)
        ]

    def _is_member(self, uid: str) -> bool:
        instance = self.instances.get(uid)
        return instance is not None and bool(instance.member_uid) and instance.parent_uid in self.pools

    def pool_of(self, uid: str) -> str:
        """The name of the pool that this sandbox came of; empty when it came of none, or that one is gone."""
        instance = self.instances.get(uid)
        pool = self.pools.get(instance.memory.pool) if instance else None
        return pool.obj.name if pool else ""
