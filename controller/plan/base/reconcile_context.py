"""Context of one object (its share of a snapshot) and the decision for it: the data that deciders exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from controller.kinds.host import NAME
from controller.kinds.meta import Condition, Event, StoredObject
from controller.kinds.observed.activity import Activity
from controller.kinds.observed.models import ModelsState
from controller.kinds.observed.observed import Container, End, State
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.runtime.probe import ProbeState
from controller.kinds.runtime.run import Run
from controller.kinds.sandbox import SandboxSpec
from controller.plan.base.network_context import NOTHING, NetworkContext
from controller.policy.refusal import Refusal
from controller.policy.sandbox import Rendered

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    D = TypeVar("D", bound=DataclassInstance)

ALIVE = (State.RUNNING, State.PAUSED, State.RESTARTING)


def replace_if_changed(current: "D", **fields: Any) -> "D":
    """Return `dataclasses.replace(current, **fields)`, or `current` itself where no field differs.

    Most passes change nothing, and a copy of a context or a state costs about ten times as much as the comparison.
    """
    for name, value in fields.items():
        present = getattr(current, name)
        if present is not value and present != value:
            return replace(current, **fields)
    return current


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Context of one sandbox to decide on: its share of the snapshot."""

    now: float
    """Time of the pass (Unix seconds)."""
    obj: StoredObject
    """The stored object."""
    spec: SandboxSpec | None
    """Its spec; None: this version can't read it."""
    rendered: Rendered | None
    """Config that its container is to have; None: its spec is unreadable or refused."""
    refusals: tuple[Refusal, ...]
    """Reasons why it is refused."""
    container: Container | None
    """The container that counts; None: it has none."""
    extra: tuple[Container, ...]
    """Further containers that bear its uid."""
    state: InstanceState
    """Its stored state."""
    instance_id: str
    """Id of the store, as in the labels of its container."""
    blind: str = ""
    """Reason why the engine can't be observed; empty: it can."""
    probed: ProbeState | None = None
    """Results of its probes."""
    lost: tuple[float, float] = (0.0, 0.0)
    """Last outage of the engine (from, to; Unix seconds): ends in it are unknown."""
    ends: Mapping[str, End] = field(default_factory=dict)
    """Ends of containers that are gone, by id."""
    activity: Activity | None = None
    """Use that this daemon has seen; None: none."""
    short_of: tuple[str, ...] = ()
    """Resources of which the host is critically short."""
    network: NetworkContext = NOTHING
    """State of its networks."""
    written_bytes: int = 0
    """Bytes on disk of its container when measured last; 0: not measured."""
    unmeasured: str = ""
    """Reason why they can't be measured."""
    stale_gpus: bool = False
    """The devices of its container are no longer its own."""
    lost_runtime: str = ""
    """Runtime of its container that the engine no longer has."""
    volumes: tuple[str, ...] = ()
    """Volumes that are removed with it."""
    replaced_volumes: tuple[str, ...] = ()
    """Volumes whose files a rollback replaces."""
    was_unguarded: bool = False
    """`state.security.is_unguarded` as stored, before this pass."""
    above_quota: str = ""
    """Weight or priority that a later quota no longer allows."""
    models: ModelsState | None = None
    """State of the model gateway's listener in it; None: unknown."""
    lacks_user_id: bool = False
    """The sandbox is to run as an id of its own, and none is free."""
    host: str = NAME
    """Name of this host."""
    taken_names: frozenset[str] = frozenset()
    """Names of other objects' containers; known only after a name was in the way."""
    hibernation: HibernationAbility = UNKNOWN_ABILITY
    """Ability of this host to hibernate."""
    stays_hibernated: bool = False
    """The sandbox may not be woken now, whatever asks for it."""

    @property
    def deleting(self) -> bool:
        return self.obj.deleted_at is not None

    @property
    def is_pool_member(self) -> bool:
        """True for a pool's member that nobody has claimed: it is planned as a sandbox."""
        return self.obj.kind != "Sandbox"

    @property
    def unconfined(self) -> str:
        """Reason why nothing confines its container's network any more; "" if something does, or it has none.

        A guard whose state is unreadable is neither lost nor back: its last known state counts.
        """
        container, lost = self.container, self.network.guard_lost
        if self.state.security.is_unguarded:
            lost = lost or self.network.unguarded
        if not lost or container is None or container.state not in ALIVE:
            return ""
        is_open = self.rendered is not None and self.rendered.open is not None
        return lost if is_open or any(bridge.name in container.networks for bridge in self.network.bridges) else ""

    def event(self, reason: str, message: str, *, warning: bool = False) -> Event:
        """Return an event about this object, now."""
        return Event(self.obj.ref, "Warning" if warning else "Normal", reason, message, self.now)


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision for one object: what to do now, and its conditions."""

    state: InstanceState
    """State to store."""
    reason: str = ""
    """Reason why it is not ready; empty: it is as desired."""
    message: str = ""
    """The same for people."""
    actions: tuple[Action, ...] = ()
    """Engine calls to make, in order."""
    until: float | None = None
    """Time of the next look at it (Unix seconds); None: at the next change."""
    events: tuple[Event, ...] = ()
    """Events to record."""
    finalize: bool = False
    """All that it owned is gone: it may be deleted."""
    finished: bool = False
    """The sandbox has run to its end."""
    drift: tuple[str, ...] = ()
    """Fields of its container that differed."""
    timer: float | None = None
    """Time of the next event of its life, such as a deadline (Unix seconds)."""
    delete: bool = False
    """The object itself is to be deleted."""
    sample: float | None = None
    """Its CPU is to be sampled for the time since then (Unix seconds)."""
    hold: Run | None = None
    """Run that nobody may begin to use any more."""
    release: Run | None = None
    """Run that may be used again."""
    reaped: str = ""
    """Reason that is counted for its end."""
    scheduled: Condition | None = None
    """Its Scheduled condition; None: it has its capacity."""
    deferred: str = ""
    """Reason why it runs with less than it asks for."""

    def with_timer(self, due: float) -> "Decision":
        """Return the decision with a timer that is due then."""
        return replace(self, timer=due if self.timer is None else min(self.timer, due))

    def with_event(self, event: Event) -> "Decision":
        """Return the decision with an event before its own."""
        return replace(self, events=(event, *self.events))
