"""The plan under construction: what the deciders of one pass add to."""

from collections import Counter
from dataclasses import dataclass, field

from controller.kinds.access.audit import AuditEntry
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import (
    Claimable,
    Deferral,
    Deletion,
    Group,
    ProbeSchedule,
    Retirement,
    Sample,
    StatusWrite,
)
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.quota import Ceiling
from controller.kinds.runtime.run import Run
from controller.plan.base.claim import Claim
from controller.plan.base.ledger import CapacityLedger
from controller.plan.base.memo import Memo, Settled
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.base.sightings import Sweep
from controller.plan.base.wake_slots import WakeSlots
from controller.policy.levels.levels import Policy


@dataclass(slots=True)
class PlanBuilder:
    """The plan under construction in one pass over `snapshot`; `memo` is kept for the next pass."""

    snapshot: Snapshot
    """Facts that this pass decides on."""
    policy: Policy
    """Rules and settings of this host."""
    memo: Memo
    """Results of earlier passes, kept for the next one."""
    groups: list[Group] = field(default_factory=list)
    """Actions to take, in order within a group."""
    deferrals: list[Deferral] = field(default_factory=list)
    """Actions that wait, with their reasons."""
    statuses: list[StatusWrite] = field(default_factory=list)
    """Statuses to store."""
    instances: list[Instance] = field(default_factory=list)
    """Records of instances to store."""
    events: list[Event] = field(default_factory=list)
    """Events to store."""
    finalized: list[ObjectRef] = field(default_factory=list)
    """Objects all of whose resources are gone."""
    retired: list[Instance] = field(default_factory=list)
    """Records of pool members whose containers are gone."""
    probes: list[ProbeSchedule] = field(default_factory=list)
    """Probes of running sandboxes, for the prober."""
    drift: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields that differ from the spec, by uid, of each object that was decided."""
    wakes: list[float] = field(default_factory=list)
    """Times at which something is due (Unix seconds); the earliest ends the pause before the next pass."""
    pending: list["PendingAdmission"] = field(default_factory=list)
    """Objects that wait for the decision on capacity at the end of the pass."""
    ledger: CapacityLedger | None = None
    """Capacity that is used and free; None until it is first needed."""
    ceilings: list[Ceiling] = field(default_factory=list)
    """Bounds for the store to check, beside the ledger's."""
    shortages: dict[str, str] = field(default_factory=dict)
    """Shortage of each pool member that lacks capacity, by uid."""
    granted: Counter[str] = field(default_factory=Counter)
    """Places in pools, given away in this pass."""
    gpus: set[str] = field(default_factory=set)
    """Devices given away in this pass."""
    queued: Counter[str] = field(default_factory=Counter)
    """Sandboxes that wait for a place in a pool, by pool."""
    gave_way_in: set[str] = field(default_factory=set)
    """Scopes in which a pool gave way in this pass (namespaces, the host): one step a pass and scope."""
    claiming: set[str] = field(default_factory=set)
    """Uids of sandboxes whose limits are not in force since they were claimed."""
    renames: int | None = None
    """Claimed containers that are being renamed, or would be but for their number; None: not counted yet."""
    pulling: set[str] = field(default_factory=set)
    """Images that this pass has fetched (hashes of their names): one pull serves all."""
    starts: int | None = None
    """Pool members that may still be started in this pass; None: any number."""
    orphans: Sweep = field(default_factory=Sweep)
    """Containers without an object, and what becomes of them."""
    deletions: list[Deletion] = field(default_factory=list)
    """Requests for deletion to store."""
    samples: list[Sample] = field(default_factory=list)
    """Containers whose CPU time is to be read."""
    holds: dict[str, Run] = field(default_factory=dict)
    """Runs, by uid, in which no use may begin: they are being stopped or hibernated."""
    releases: dict[str, Run] = field(default_factory=dict)
    """Runs, by uid, that may be used again."""
    wake_slots: WakeSlots | None = None
    """Room for wakes that is left; None until it is counted."""
    wake_candidates: int | None = None
    """Sandboxes that wait to be woken and are decided in this pass; None: not bounded yet."""
    skipped_wakes: set[str] = field(default_factory=set)
    """Hibernated sandboxes, by uid, whose wake is left for a later pass."""
    reaped: list[str] = field(default_factory=list)
    """Reasons of removals, for the metrics."""
    claimable: list[Claimable] = field(default_factory=list)
    """Pool members that were ready as the pass began."""
    retirements: list[Retirement] = field(default_factory=list)
    """Unused pool members to remove."""
    audit: list[AuditEntry] = field(default_factory=list)
    """Entries that must be logged before their action."""


@dataclass(frozen=True, slots=True)
class PendingAdmission:
    """A decision that still needs capacity: admitted, or made to wait, after all that hold or free some."""

    context: ReconcileContext
    decision: Decision
    claim: Claim
    instance: Instance | None
    key: Settled
    quiet: bool
