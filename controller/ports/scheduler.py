"""Port to a scheduler: an existing distributed engine that knows hosts and chooses one for each sandbox.

The scheduler owns membership, host death, capacity, and the choice of a host. Paddock asks it to place a sandbox,
reads the answer, and binds the sandbox to that host. It never chooses, and never infers that a host is dead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from controller.ports.common import Wake


class SchedulerProblem(Enum):
    """Causes of a SchedulerError."""

    UNREACHABLE = "SchedulerUnreachable"  # nobody answers
    NOT_A_MEMBER = "NotInCluster"  # the engine is in no cluster, or may not change it
    NO_LEADER = "NoQuorum"  # the cluster can't decide: too few of its managers are there
    REFUSED = "SchedulerRefused"  # it refuses this request; the same request will be refused again


class SchedulerError(Exception):
    """The scheduler did not do it or did not answer; nothing is known. The message is for people."""

    def __init__(self, problem: SchedulerProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class StaleBinding(Exception):
    """The scheduler has a placement of a later binding (or of another one, for `pin`): read again."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A sandbox to be placed, with the reservation that it needs on its host.

    `binding` counts the hosts that it was bound to: a later one replaces an earlier one. A `host` pins it, and then
    `node_selector` says nothing. `running` is False for a suspended one: it keeps its host, and reserves nothing.
    `labels` are for people who look at the scheduler's own lists.
    """

    uid: str
    binding: int
    memory_bytes: int
    cpu_millicores: int
    node_selector: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    running: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pending:
    """No host has it now; `message` is the scheduler's. With a pinned one, its host may be full, paused or drained."""

    message: str


@dataclass(frozen=True, slots=True)
class NoHost:
    """Nobody places sandboxes here: one without a host stays without (scheduler `manual`)."""

    message: str


@dataclass(frozen=True, slots=True)
class Placed:
    """The scheduler has reserved for it on this host."""

    host: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """It reserves nothing, and is pinned to this host ("": to none)."""

    host: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The host that it is pinned to is down or no longer a member, by the scheduler's word."""

    host: str
    message: str


PlacementState = Pending | NoHost | Placed | Suspended | Lost


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """A placement as the scheduler has it, and its state."""

    placement: Placement
    state: PlacementState


class Availability(Enum):
    """Use of a host by the scheduler. `PAUSED`: nothing new; `DRAINED`: what is placed there has to go, too."""

    ACTIVE = "active"
    PAUSED = "pause"
    DRAINED = "drain"


class Liveness(Enum):
    """State of a host by the scheduler's word. `UNKNOWN`: it is not sure, e.g. after a change of its leader."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SchedulerHost:
    """A member of the cluster."""

    id: str
    """Scheduler's id of it."""
    name: str
    """Paddock's name of it (setting `host_name`)."""
    address: str
    """Address of the machine."""
    liveness: Liveness
    """Up, down, or unknown."""
    availability: Availability
    """Active, paused, or drained."""
    fit: bool
    """It may get new placements."""
    labels: Mapping[str, str]
    """Labels that selectors are compared with."""
    cpu_millicores: int
    """CPU of the machine."""
    memory_bytes: int
    """Memory of the machine."""
    message: str = ""
    """The scheduler's word on it."""


class Scheduler(Protocol):
    """Every method but `watch` may raise SchedulerError. Methods may be called from any thread."""

    def ping(self) -> str:
        """Return the scheduler's id of this process's own host ("" if it has none), if the cluster can decide now."""
        ...

    def prepare(self) -> None:
        """Make this process's own host ready for placements; to be called by each host's daemon. Idempotent."""
        ...

    def hosts(self) -> Sequence[SchedulerHost]:
        """Return the members of the cluster, in order of their names."""
        ...

    def set_host(
        self, name: str, *, fit: bool, labels: Mapping[str, str], availability: Availability | None = None
    ) -> None:
        """Say if a host gets new placements, and its labels for selectors; None leaves its availability. Idempotent.

        What is pinned to it stays, whatever its labels. Unknown hosts are refused.
        """
        ...

    def place(self, placement: Placement) -> PlacementState:
        """Ask for a host, or change what was asked: reservation, running, binding, selector, host. Idempotent.

        One that has a host of the same binding keeps it, unless another is asked for. Raises StaleBinding.
        """
        ...

    def pin(self, uid: str, binding: int, host: str) -> PlacementState:
        """Have the placement stay on that host from now on; it is not interrupted there. Idempotent.

        Raises StaleBinding if there is no placement of that binding.
        """
        ...

    def release(self, uid: str, binding: int | None = None) -> None:
        """Forget a placement; with a `binding`, only of that one or an earlier one. Idempotent."""
        ...

    def list(self) -> Sequence[PlacedRecord]:
        """Return all placements of this installation, in order of their uids."""
        ...

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` when placements or hosts may have changed; return what ends that. It never raises."""
        ...
