"""A plan in the making, and what is kept from one pass to the next. Used by plan/host.py alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.kinds.access.audit import AuditEntry
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.activity import Run
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Deferral, Deletion, Group, Probing, Retirement, Sample, StatusWrite, Warm
from controller.kinds.planning.snapshot import Pool, Sandbox, Snapshot
from controller.kinds.sandbox import Template
from controller.plan.capacity.orphans import Sightings, Sweep
from controller.plan.capacity.quota import Claim, Room
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.network.surroundings import taken_subnets
from controller.plan.pool import sandboxpool as pools
from controller.policy.admission import Refusal
from controller.policy.sandbox import Rendered


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is known of the image of a pool that keeps nothing warm. `image`: a hash of its name, as of `template`.

    `here` is that it was found or fetched; else `words` say why not, and `retry_at` when to try again (Unix seconds).
    """

    template: Template | None
    image: str
    here: bool = False
    failures: int = 0
    retry_at: float = 0.0
    words: str = ""


@dataclass(slots=True)
class Memo:
    """What need not be worked out again, and since when orphans are seen.

    Dropping it at any time changes no plan, only its price; but every orphan's grace begins anew, and the images of
    pools are looked for again.
    """

    policy: str = ""
    rendered: dict[str, tuple[tuple[object, ...], Rendered | None, tuple[Refusal, ...]]] = field(default_factory=dict)
    members: dict[str, tuple[Pool, str, Sandbox]] = field(default_factory=dict)
    settled: dict[str, tuple[object, ...]] = field(default_factory=dict)
    quotas: tuple[object, ...] = ()  # what the quotas' statuses were computed from, once those are all stored
    profiles: tuple[object, ...] = ()  # the same of the security profiles
    orphans: Sightings = field(default_factory=Sightings)
    fetches: dict[str, Fetch] = field(default_factory=dict)  # by pool
    timers: dict[str, tuple[float, float]] = field(default_factory=dict)  # of the settled: since when, and due when
    stray_networks: dict[str, float] = field(default_factory=dict)  # by id, and since when they are seen so
    # The subnets that are given away, in the pass of that snapshot.
    taken: tuple[Snapshot | None, set[str]] = field(default_factory=lambda: (None, set()))

    def fit(self, policy: str) -> None:
        """Forget what was worked out under another policy."""
        if policy != self.policy:
            self.policy = policy
            self.rendered.clear()
            self.settled.clear()
            self.timers.clear()

    def subnets(self, snapshot: Snapshot) -> set[str]:
        """The subnets that are given away; what this pass gives away is to be added."""
        if self.taken[0] is not snapshot:
            self.taken = (snapshot, taken_subnets(snapshot))
        return self.taken[1]

    def keep_only(self, sandboxes: Mapping[str, Sandbox]) -> None:
        """Forget objects that are gone."""
        for gone in self.rendered.keys() - sandboxes.keys():
            del self.rendered[gone]
            self.timers.pop(gone, None)
            self.settled.pop(gone, None)
            self.members.pop(gone, None)

    def member(self, pool: Pool, instance: Instance) -> Sandbox:
        """A pool's member as it is planned; the same Python object as long as nothing about it changes."""
        known = self.members.get(instance.uid)
        if known is None or not _same_members(known[0], pool) or known[1] != instance.role:
            known = (pool, instance.role, pools.as_sandbox(pool, instance))
            self.members[instance.uid] = known
        return known[2]


def _same_members(one: Pool, other: Pool) -> bool:
    """Whether the members of both look the same to the planner; a pool's status moves with each of them."""
    return one is other or (one.spec is other.spec and one.template is other.template and one.broken == other.broken)


@dataclass(slots=True)
class Draft:
    """A plan in the making."""

    groups: list[Group] = field(default_factory=list)
    deferrals: list[Deferral] = field(default_factory=list)
    statuses: list[StatusWrite] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    finalized: list[ObjectRef] = field(default_factory=list)
    retired: list[Instance] = field(default_factory=list)
    probes: list[Probing] = field(default_factory=list)
    drift: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wakes: list[float] = field(default_factory=list)
    asking: list["Asking"] = field(default_factory=list)
    room: Room | None = None
    short: dict[str, str] = field(default_factory=dict)  # members of pools that lack room, and for what
    granted: Counter[str] = field(default_factory=Counter)  # places in pools, given away in this pass
    gpus: set[str] = field(default_factory=set)  # devices given away in this pass
    queued: Counter[str] = field(default_factory=Counter)  # sandboxes that wait for one
    gave: set[str] = field(default_factory=set)  # where a pool has given way in this pass (namespaces, the host)
    claiming: set[str] = field(default_factory=set)  # whose limits are not in force since they were claimed (uids)
    pulling: set[str] = field(default_factory=set)  # images that this pass has fetched (hashes of their names)
    starts: int | None = None  # how many members of pools may still be started in this pass; None: any number
    orphans: Sweep = field(default_factory=Sweep)
    deletions: list[Deletion] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    holds: dict[str, Run] = field(default_factory=dict)
    reaped: list[str] = field(default_factory=list)
    warm: list[Warm] = field(default_factory=list)
    retirements: list[Retirement] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Asking:
    """A decision that is made but for the room it takes."""

    case: Case
    decision: Decision
    claim: Claim
    instance: Instance | None
    key: tuple[object, ...]
    quiet: bool
