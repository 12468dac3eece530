"""The plan under construction: what the deciders of one pass add to."""

from collections import Counter
from dataclasses import dataclass, field

from controller.kinds.access.audit import AuditEntry
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.activity import Run
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import (
    Deferral,
    Deletion,
    Group,
    ProbeSchedule,
    Retirement,
    Sample,
    StatusWrite,
    Warm,
)
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.quota import Ceiling
from controller.plan.base.claim import Claim
from controller.plan.base.ledger import CapacityLedger
from controller.plan.base.memo import Memo, Settled
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.base.sightings import Sweep
from controller.policy.levels.levels import Policy


@dataclass(slots=True)
class PlanBuilder:
    """The plan under construction in one pass over `snapshot`; `memo` is kept for the next pass."""

    snapshot: Snapshot
    policy: Policy
    memo: Memo
    groups: list[Group] = field(default_factory=list)
    deferrals: list[Deferral] = field(default_factory=list)
    statuses: list[StatusWrite] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    finalized: list[ObjectRef] = field(default_factory=list)
    retired: list[Instance] = field(default_factory=list)
    probes: list[ProbeSchedule] = field(default_factory=list)
    drift: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wakes: list[float] = field(default_factory=list)
    pending: list["PendingAdmission"] = field(default_factory=list)
    ledger: CapacityLedger | None = None
    ceilings: list[Ceiling] = field(default_factory=list)  # beside the ledger's
    shortages: dict[str, str] = field(default_factory=dict)  # shortage of each pool member that lacks capacity, by uid
    granted: Counter[str] = field(default_factory=Counter)  # places in pools, given away in this pass
    gpus: set[str] = field(default_factory=set)  # devices given away in this pass
    queued: Counter[str] = field(default_factory=Counter)  # sandboxes that wait for one
    gave: set[str] = field(default_factory=set)  # scopes in which a pool gave way in this pass (namespaces, the host)
    claiming: set[str] = field(default_factory=set)  # whose limits are not in force since they were claimed (uids)
    pulling: set[str] = field(default_factory=set)  # images that this pass has fetched (hashes of their names)
    starts: int | None = None  # how many members of pools may still be started in this pass; None: any number
    orphans: Sweep = field(default_factory=Sweep)
    deletions: list[Deletion] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    holds: dict[str, Run] = field(default_factory=dict)
    releases: dict[str, Run] = field(default_factory=dict)
    waking: int | None = None  # hibernated sandboxes that are woken, once counted
    wake_candidates: int | None = None  # of those that wait to be woken: so many more are decided in this pass
    skipped_wakes: bool = False
    reaped: list[str] = field(default_factory=list)
    warm: list[Warm] = field(default_factory=list)
    retirements: list[Retirement] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PendingAdmission:
    """A decision that still needs capacity: admitted, or made to wait, after all that hold or free some."""

    context: ReconcileContext
    decision: Decision
    claim: Claim
    instance: Instance | None
    key: Settled
    quiet: bool
