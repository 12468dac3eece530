"""The memo of the planner: results that are kept from one pass to the next."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from controller.kinds.common.tracked_map import TrackedMap, changed_keys
from controller.kinds.observed.activity import Activity
from controller.kinds.observed.models import ModelsState
from controller.kinds.observed.observed import Container, HostFacts
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Pool, Sandbox, Snapshot
from controller.kinds.provider import StoredProvider
from controller.kinds.quota import Amount, StoredQuota
from controller.kinds.runtime.network import Network
from controller.kinds.runtime.probe import ProbeState
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.securityprofile import StoredProfile
from controller.plan.base import user_ids
from controller.plan.base.members import as_sandbox
from controller.plan.base.network_context import taken_subnets
from controller.plan.base.sightings import Sightings
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import UPLINK
from controller.policy.quota_ledger import QuotaBound, weight_bounds
from controller.policy.refusal import Refusal
from controller.policy.sandbox import Rendered, Shape, admit_with, shape_of

_MOST_SHAPES = 200


@dataclass(frozen=True, slots=True)
class Fetch:
    """State of the image pull of a pool that keeps no member warm. `image` is a hash of its name, as of `template`.

    `is_here`: it was found or pulled; else `message` says why not, and `retry_at` when to try again (Unix seconds).
    """

    template: Template | None
    image: str
    is_here: bool = False
    failures: int = 0
    retry_at: float = 0.0
    message: str = ""


class RenderedKey(NamedTuple):
    """Inputs of a rendered configuration; `spec` and `template` are compared by identity."""

    spec: SandboxSpec | None
    template: Template | None
    name: str
    hostname: str
    broken: str
    user_id: int


@dataclass(slots=True, eq=False)
class Settled:
    """Inputs of the last decision on a settled object. The same inputs need no new decision. `host` is of the pass.

    A class with slots, since it is read for every object in every pass: a named tuple's fields take longer to read.
    """

    sandbox: Sandbox
    containers: tuple[Container, ...] | None
    instance: Instance | None
    host: "HostKey"
    probed: ProbeState | None
    activity: Activity | None
    egress: tuple[Container, ...] | None
    models: ModelsState | None


class HostKey(NamedTuple):
    """Parts of the snapshot that every decision depends on."""

    blind: str
    lost: tuple[float, float]
    short_of: tuple[str, ...]
    unguarded: str
    guard_lost: bool
    guard_broken: str
    weights: Mapping[str, tuple[QuotaBound, ...]]
    hibernates: bool


class Seen(NamedTuple):
    """Inputs of the decisions of one pass, by uid. An object whose own did not change since has the same values.

    Decided are the `sandboxes`, and `members` of pools in the form of sandboxes.
    """

    sandboxes: Mapping[str, Sandbox]
    members: Mapping[str, Sandbox]
    containers: Mapping[str, tuple[Container, ...]]
    instances: Mapping[str, Instance]
    probes: Mapping[str, ProbeState]
    activity: Mapping[str, Activity]
    models: Mapping[str, ModelsState]
    host: HostKey
    in_flight: frozenset[str]

    def planned(self, uid: str) -> Sandbox | None:
        """Return a sandbox or member; None if there is none."""
        return self.members.get(uid) or self.sandboxes.get(uid)

    def all_uids(self) -> dict[str, None]:
        """Return the uids of all objects, in their order."""
        return {**dict.fromkeys(self.sandboxes), **dict.fromkeys(self.members)}

    def in_order(self, uids: Set[str]) -> list[str]:
        """Return those of these uids that are objects', in their order."""
        planned_uids = [uid for uid in uids if uid in self.sandboxes]
        if isinstance(self.sandboxes, TrackedMap):
            planned_uids = self.sandboxes.in_order(planned_uids)
        else:
            planned_uids = [uid for uid in self.sandboxes if uid in uids]
        return planned_uids + [uid for uid in self.members if uid in uids and uid not in self.sandboxes]


class QuotasKey(NamedTuple):
    """Inputs of the quotas' statuses."""

    quotas: Mapping[str, StoredQuota]
    facts: HostFacts
    instances: tuple[int, Mapping[str, Amount]]
    objects: Mapping[str, int]


class ProfilesKey(NamedTuple):
    """Inputs of the security profiles' statuses."""

    profiles: Mapping[str, StoredProfile]
    policy: str


class ProvidersKey(NamedTuple):
    """Inputs of the providers' statuses."""

    providers: Mapping[str, StoredProvider]
    states: Mapping[str, ModelsState]


class KnownRender(NamedTuple):
    """A rendered configuration, or the refusals of its spec, with its inputs."""

    key: RenderedKey
    rendered: Rendered | None
    refusals: tuple[Refusal, ...]


class KnownShape(NamedTuple):
    """Parts that all sandboxes of one spec and template share (compared by identity); None: it is refused."""

    spec: SandboxSpec
    template: Template
    shape: Shape | None
    refusals: tuple[Refusal, ...]


class KnownMember(NamedTuple):
    """A pool's member in the form of a sandbox, with its inputs."""

    pool: Pool
    role: str
    sandbox: Sandbox


class JudgedMember(NamedTuple):
    """State of a pool's warm member (`plan/pool/sandboxpool.py: Member`), with its inputs, compared by identity."""

    sandbox: Sandbox
    instance: Instance
    containers: tuple[Container, ...] | None
    hibernates: bool
    state: Any


class Timer(NamedTuple):
    """Timer of a settled object, set at `since` and due at `due` (Unix seconds)."""

    since: float
    due: float


class Weights(NamedTuple):
    """Bounds of weight and priority by namespace, of these quotas. The same mapping until a bound changes."""

    quotas: Mapping[str, StoredQuota] | None
    bounds: Mapping[str, tuple[QuotaBound, ...]]


@dataclass(slots=True)
class TakenIds:
    """User ids in use ("") or chosen for an object (its uid) in the pass over `snapshot`. `last` is the newest choice.

    `chosen` are those of objects whose record is not stored yet: they keep them from one pass to the next.
    """

    snapshot: Snapshot | None = None
    holders: dict[int, str] = field(default_factory=dict)
    chosen: dict[str, int] = field(default_factory=dict)
    last: int = 0


class Taken(NamedTuple):
    """Subnets in use or assigned, in the pass of this snapshot."""

    snapshot: Snapshot | None
    subnets: set[str]


@dataclass(slots=True)
class Memo:
    """Results kept from one pass to the next, and since when orphans are seen.

    Dropping it at any time changes no plan, only its cost; but every orphan's grace starts again, the images of pools
    are looked up again, and another free user id may be the next.
    """

    policy: str = ""
    """Hash of the policy that all results are of."""
    rendered: dict[str, KnownRender] = field(default_factory=dict)
    """Configurations of containers, by uid."""
    shapes: dict[tuple[int, int], KnownShape] = field(default_factory=dict)
    """Parts that sandboxes share, by the ids of spec and template."""
    members: dict[str, KnownMember] = field(default_factory=dict)
    """Pool members in the form of sandboxes, by uid."""
    judged: dict[str, JudgedMember] = field(default_factory=dict)
    """States of the pools' warm members, by uid: a claim changes one of many."""
    settled: dict[str, Settled] = field(default_factory=dict)
    """Inputs of the last decision on each settled object, by uid."""
    quotas: QuotasKey | None = None
    """Inputs of the quotas' statuses, once all of those are stored."""
    profiles: ProfilesKey | None = None
    """The same of the security profiles."""
    providers: ProvidersKey | None = None
    """The same of the providers."""
    owned: dict[str, str] = field(default_factory=dict)
    """Uids of model servers' sandboxes, by the server's."""
    orphans: Sightings = field(default_factory=Sightings)
    """Since when each container without an object is seen."""
    fetches: dict[str, Fetch] = field(default_factory=dict)
    """Image pulls of pools that keep no member warm, by pool."""
    timers: dict[str, Timer] = field(default_factory=dict)
    """Timers of settled objects, by uid."""
    networks: Mapping[str, Network] = field(default_factory=lambda: MappingProxyType({}))
    """Networks of the pass before: only changed ones are judged again."""
    unsettled: set[str] = field(default_factory=set)
    """Uids of objects that were decided before, and have not settled."""
    last_pass: Seen | None = None
    """Inputs of the pass before; None: all is decided."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Sandboxes whose writable layer could not be measured in the pass before, and why."""
    unresolved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names that could not be resolved in the pass before, by uid."""
    bursts: Mapping[str, Instance] = field(default_factory=lambda: MappingProxyType({}))
    """Instances of the pass in which claims were last looked for."""
    claimed: set[str] = field(default_factory=set)
    """Uids of sandboxes whose claims may be part of the present burst."""
    stray_networks: dict[str, float] = field(default_factory=dict)
    """Networks without an object, by id, and since when they are seen so."""
    used_addresses: Taken = field(default_factory=lambda: Taken(None, set()))
    """Subnets in use or assigned."""
    user_ids: TakenIds = field(default_factory=TakenIds)
    """User ids in use or chosen."""
    weights: Weights = field(default_factory=lambda: Weights(None, MappingProxyType({})))
    """Bounds of weight and priority."""

    def fit(self, policy: str) -> None:
        """Forget all results of another policy."""
        if policy != self.policy:
            self.policy = policy
            self.rendered.clear()
            self.shapes.clear()
            self.judged.clear()
            self.settled.clear()
            self.timers.clear()
            self.unsettled.clear()
            self.last_pass = None

    def settle(self, uid: str, key: Settled) -> None:
        """Decide no more on this object until one of these inputs changes."""
        self.settled[uid] = key
        self.unsettled.discard(uid)

    def unsettle(self, uid: str) -> None:
        """Decide again on this object in the next pass."""
        self.settled.pop(uid, None)
        self.unsettled.add(uid)

    def shape(self, spec: SandboxSpec, template: Template, policy: Policy) -> KnownShape:
        """Return the shape of a spec with its template, or the refusals. The latest are kept: many share one."""
        key = (id(spec), id(template))
        shape = self.shapes.get(key)
        if shape is None:
            refusals = admit_with(spec, template, policy)
            shape = KnownShape(spec, template, None if refusals else shape_of(spec, template, policy), refusals)
            if len(self.shapes) >= _MOST_SHAPES:
                self.shapes.pop(next(iter(self.shapes)))
            self.shapes[key] = shape
        return shape

    def candidates(self, now: Seen, changed_uids: Set[str]) -> set[str]:
        """Return the objects that may need a decision: all but the settled ones whose inputs did not change.

        `changed_uids` have other news. To compare whole mappings costs a tenth of looking at each object.
        """
        before = self.last_pass
        if before is None:
            self._keep_only(now)
            return set(now.all_uids())
        changed_members = changed_keys(before.members, now.members)
        planned = changed_keys(before.sandboxes, now.sandboxes) | changed_members
        self._forget(uid for uid in planned if now.planned(uid) is None)
        for uid in changed_members - now.members.keys():  # claimed ones are sandboxes from now on
            self.members.pop(uid, None)
            self.judged.pop(uid, None)
        if before.host != now.host:
            return set(now.all_uids())
        containers = changed_keys(before.containers, now.containers)
        uids = {
            *self.unsettled,
            *planned,
            *containers,
            *changed_keys(before.instances, now.instances),
            *changed_keys(before.probes, now.probes),
            *changed_keys(before.activity, now.activity),
            *changed_keys(before.models, now.models),
            *before.in_flight,
            *changed_uids,
        }
        # Others are egress containers, which belong to the parent that their record names.
        for uid in [uid for uid in containers if now.planned(uid) is None]:
            record = now.instances.get(uid) or before.instances.get(uid)
            if record is None:
                return set(now.all_uids())
            uids.add(record.parent_uid)
        return uids

    def forget_networks(self, now: Mapping[str, Network]) -> None:
        """Forget the decisions on objects that a change of networks touches; `now` are those of this pass.

        Those are the owners of what changed. A shared bridge touches those that join it, the uplink all sealed ones.
        """
        before, self.networks = self.networks, now
        if before is now:
            return
        # A network that has gone is in the first list only, a new one in the second.
        changed = [*_unlike(before, now), *_unlike(now, before)]
        owners = {network.uid for network in changed}
        namespaces = {network.namespace for network in changed if not network.uid}
        uplink = any(network.name == UPLINK for network in changed)
        for uid, settled in list(self.settled.items()) if changed else ():
            rendered = self.rendered[uid].rendered if uid in self.rendered else None
            joins = rendered is not None and rendered.config.joins_peers and settled.sandbox.obj.namespace in namespaces
            if uid in owners or joins or (uplink and rendered is not None and rendered.sealed is not None):
                self.unsettle(uid)

    def subnets(self, snapshot: Snapshot) -> set[str]:
        """Return the subnets in use or assigned; the caller adds those that it assigns in this pass."""
        if self.used_addresses.snapshot is not snapshot:
            subnets = taken_subnets(snapshot.instances.values(), snapshot.observed.networks.values())
            self.used_addresses = Taken(snapshot, subnets)
        return self.used_addresses.subnets

    def user_id(self, snapshot: Snapshot, uid: str, policy: Policy) -> int:
        """Return a free user id for an object without one, the same until it is stored; 0: there is none."""
        own_ids, ids = policy.own_ids(), self.user_ids
        if own_ids is None:
            return 0
        if ids.snapshot is not snapshot:
            ids.snapshot = snapshot
            ids.holders = dict.fromkeys(user_ids.in_use(snapshot.instances, snapshot.observed.containers), "")
            ids.last = ids.last or user_ids.newest(snapshot.instances)
        user_id = ids.chosen.get(uid, 0)
        if user_id not in own_ids or ids.holders.get(user_id, uid) != uid:
            user_id = user_ids.next_free(own_ids, ids.holders, ids.last)
            ids.last = user_id or ids.last
        if user_id:
            ids.holders[user_id], ids.chosen[uid] = uid, user_id
        return user_id

    def weight_bounds(self, snapshot: Snapshot) -> Mapping[str, tuple[QuotaBound, ...]]:
        """Return the quotas that bound weight and priority, by namespace."""
        weights = self.weights
        if weights.quotas is not snapshot.rules.quotas:
            bounds = weight_bounds(snapshot.rules.quotas.values(), snapshot.observed.facts, snapshot.fleet.host)
            self.weights = Weights(snapshot.rules.quotas, weights.bounds if weights.bounds == bounds else bounds)
        return self.weights.bounds

    def _keep_only(self, now: Seen) -> None:
        self._forget((self.rendered.keys() | self.settled.keys() | self.unsettled) - now.all_uids().keys())

    def _forget(self, uids: Iterable[str]) -> None:
        """Forget objects that are gone."""
        for uid in uids:
            self.rendered.pop(uid, None)
            self.unsettled.discard(uid)
            self.timers.pop(uid, None)
            self.settled.pop(uid, None)
            self.members.pop(uid, None)
            self.judged.pop(uid, None)
            self.user_ids.chosen.pop(uid, None)

    def member(self, pool: Pool, instance: Instance) -> Sandbox:
        """Return a pool's member as a sandbox; the same Python object as long as nothing about it changes."""
        member = self.members.get(instance.uid)
        if member is None or not _same_members(member.pool, pool) or member.role != instance.role:
            member = KnownMember(pool=pool, role=instance.role, sandbox=as_sandbox(pool, instance))
            self.members[instance.uid] = member
        return member.sandbox


def _unlike(some: Mapping[str, Network], other_networks: Mapping[str, Network]) -> list[Network]:
    return [network for name, network in some.items() if other_networks.get(name) != network]


def _same_members(first: Pool, second: Pool) -> bool:
    """Return True if the members of both are the same to the planner; a pool's status changes with each of them."""
    return first is second or (
        first.spec is second.spec and first.template is second.template and first.broken == second.broken
    )
