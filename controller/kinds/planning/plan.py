"""A plan is a value that prints itself; the print is the test language.

One line an action, grouped by object, each with its reason; then deferrals and until when; then the next wake.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from controller.kinds.access.audit import AuditEntry
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Instance
from controller.kinds.quota import Ceiling
from controller.kinds.runtime.probe import Watch
from controller.kinds.runtime.run import Run


@dataclass(frozen=True, slots=True)
class Group:
    """Actions of one object, carried out in order; the first failure ends the group.

    `urgent`: few and quick, and somebody waits for them; they do not queue behind starts.
    """

    ref: ObjectRef
    generation: int
    deleting: bool
    actions: tuple[Action, ...]
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Deferral:
    """An object that is deferred. `until` is Unix seconds; None: until another event."""

    ref: ObjectRef
    reason: str
    message: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ProbeSchedule:
    """The probes to run for one object from now on. Objects that a plan does not name keep theirs."""

    ref: ObjectRef
    watches: tuple[Watch, ...]

    def __str__(self) -> str:
        return f"{self.ref} probes {', '.join(str(watch) for watch in self.watches) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class StatusWrite:
    ref: ObjectRef
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A request for deletion at `at` (Unix seconds); void if the spec has another generation by then."""

    ref: ObjectRef
    generation: int
    at: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """A sandbox that waits for quota. `scope` is `namespace`, `pool` or `host`; `resource` is the short one.

    `holds_up`: later sandboxes in the same quota wait for it.
    """

    uid: str
    scope: str
    resource: str
    holds_up: bool = True


@dataclass(frozen=True, slots=True)
class Claimable:
    """A pool's member that is ready to be claimed; `created_at` is Unix seconds."""

    uid: str
    pool: ObjectRef
    created_at: float


@dataclass(frozen=True, slots=True)
class Retirement:
    """An unused pool member to be removed.

    Its reason: `age`, `outdated`, `unhealthy`, `scale_down`, or `room` (quota).
    """

    uid: str
    pool: ObjectRef
    reason: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A request to read CPU time of a container. The first reading after `since` (Unix seconds) is kept as the mark."""

    uid: str
    container: Container
    since: float


@dataclass(frozen=True, slots=True)
class Writes:
    """Rows that the store must hold before any action starts; one transaction.

    `instances` are compare-and-set on `version` (0: must be new). `finalized` are objects whose resources are all gone:
    the named finalizer is removed, and with the last one the object and its instance. `retired` are pool members whose
    containers are gone: their rows are removed. `ceilings` are the sums that the instances may reach with this; more is
    a conflict. `audit` entries must be logged before their action.
    """

    statuses: tuple[StatusWrite, ...] = ()
    instances: tuple[Instance, ...] = ()
    events: tuple[Event, ...] = ()
    finalized: tuple[tuple[ObjectRef, str], ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    retired: tuple[Instance, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    audit: tuple[AuditEntry, ...] = ()

    def __bool__(self) -> bool:
        contents = (
            self.statuses,
            self.instances,
            self.events,
            self.finalized,
            self.retired,
            self.deletions,
            self.audit,
        )
        return any(contents)


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions to take now, rows to store before them, and facts for those who watch the pass."""

    now: float
    """Time of the pass (Unix seconds)."""
    groups: tuple[Group, ...] = ()
    """Actions, in order within a group; groups are independent of each other."""
    deferrals: tuple[Deferral, ...] = ()
    """Actions that wait, with their reasons."""
    writes: Writes = Writes()
    """Rows that the store must hold before any action starts."""
    next_wake: float | None = None
    """When to plan again if nothing else happens (Unix seconds); None: never."""
    probes: tuple[ProbeSchedule, ...] = ()
    """Probes of running sandboxes, for the prober."""
    drift: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Fields that differ from the spec, by uid, of each object that was decided in this pass."""
    orphans: int | None = None
    """Number of containers without an object; None: unknown."""
    orphans_removed: int = 0
    """Number of those that were reported as gone since the last pass."""
    samples: tuple[Sample, ...] = ()
    """Containers whose CPU time is to be read."""
    holds: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    """Runs, by uid, that are being stopped or hibernated for idleness: no new use may begin."""
    releases: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    """Runs, by uid, that are woken: they may be used again."""
    reaped: tuple[str, ...] = ()
    """Reasons of removals, for the metrics."""
    shortages: tuple[Shortage, ...] = ()
    """Sandboxes that wait for quota."""
    claimable: tuple[Claimable, ...] = ()
    """Pool members that were ready as the pass began; it may retire some of them."""
    retirements: tuple[Retirement, ...] = ()
    """Unused pool members to remove."""
    queued: frozenset[str] = frozenset()
    """Hibernated sandboxes, by uid, that wait to be woken as before: whoever waits for one need not look."""

    def __str__(self) -> str:
        lines = []
        for group in sorted(self.groups, key=lambda group: str(group.ref)):
            lines.append(f"{group.ref}")
            lines += [f"  {action}  # {action.why}" for action in group.actions]
        for deferral in sorted(self.deferrals, key=lambda deferral: str(deferral.ref)):
            when = "" if deferral.until is None else f" until +{deferral.until - self.now:g}s"
            lines.append(f"{deferral.ref} waits{when}  # {deferral.reason}: {deferral.message}")
        lines += sorted(str(probe) for probe in self.probes)
        lines += [f"{ref} is to be deleted" for ref in sorted(str(deletion.ref) for deletion in self.writes.deletions)]
        lines += [f"{ref} is gone  # {finalizer}" for ref, finalizer in sorted(self.writes.finalized, key=str)]
        lines += [f"instance {instance.name} is gone" for instance in self.writes.retired]
        if self.next_wake is not None:
            lines.append(f"next wake +{self.next_wake - self.now:g}s")
        return "\n".join(lines) or "nothing to do"
