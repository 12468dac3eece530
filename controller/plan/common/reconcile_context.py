"""One object's share of a snapshot, and what was decided for it: what the deciders hand each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from controller.kinds.meta import Condition, Event, StoredObject
from controller.kinds.observed.activity import Activity, Run
from controller.kinds.observed.observed import Container, End, State
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Memory
from controller.kinds.runtime.probe import Probed
from controller.kinds.sandbox import SandboxSpec
from controller.plan.network.network_context import NOTHING, NetworkContext
from controller.policy.admission import Refusal
from controller.policy.sandbox import Rendered

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    D = TypeVar("D", bound=DataclassInstance)

ALIVE = (State.RUNNING, State.PAUSED, State.RESTARTING)


def replace_if_changed(known: "D", **fields: Any) -> "D":
    """Return `dataclasses.replace(known, **fields)`, or `known` itself where no field differs.

    Most passes change nothing, and a copy of a context or a state costs about ten times as much as the comparison.
    """
    for name, value in fields.items():
        held = getattr(known, name)
        if held is not value and held != value:
            return replace(known, **fields)
    return known


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """A Sandbox to decide on. `container` is the one that counts, `extra` any others that bear its uid.

    `rendered` is None where the spec can't be read or is refused; `refusals` says why. `blind` is why the engine
    could not be looked at ("" when it could). `probed` is what its probes came to. `lost` and `ends` are the
    observation's. `activity` is what this daemon has seen of its use, None: nothing. `short_of` is what the host
    lacks critically. `network` is the state of its networks. `written_bytes` is what its container was last measured to
    have written to disk (0: not measured). `stale_gpus`: the devices that its container was made with are not its own.
    `volumes` are removed with it. `was_unguarded` is `memory.unguarded` as stored, before this pass.
    """

    now: float
    obj: StoredObject
    spec: SandboxSpec | None
    rendered: Rendered | None
    refusals: tuple[Refusal, ...]
    container: Container | None
    extra: tuple[Container, ...]
    memory: Memory
    instance_id: str
    blind: str = ""
    probed: Probed | None = None
    lost: tuple[float, float] = (0.0, 0.0)
    ends: Mapping[str, End] = field(default_factory=dict)
    activity: Activity | None = None
    short_of: tuple[str, ...] = ()
    network: NetworkContext = NOTHING
    written_bytes: int = 0
    stale_gpus: bool = False
    volumes: tuple[str, ...] = ()
    was_unguarded: bool = False

    @property
    def deleting(self) -> bool:
        return self.obj.deleted_at is not None

    @property
    def unconfined(self) -> str:
        """Why nothing confines its container's network any more; "" when something does, or it has none.

        A guard that can't be read is neither lost nor back: what was known of it counts.
        """
        box, lost = self.container, self.network.guard_lost
        if self.memory.unguarded:
            lost = lost or self.network.unguarded
        if not lost or box is None or box.state not in ALIVE:
            return ""
        is_open = self.rendered is not None and self.rendered.open is not None
        return lost if is_open or any(each.name in box.networks for each in self.network.bridges) else ""

    def event(self, reason: str, message: str, *, warning: bool = False) -> Event:
        """An event about this object, now."""
        return Event(self.obj.ref, "Warning" if warning else "Normal", reason, message, self.now)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do for one object, and how it stands.

    `reason` and `message` say why it is not ready now ("" when it is as asked); `until` is when to look again
    (Unix seconds); `finalize`: all it owned is gone; `finished`: it has run to its end. `drift` names what differed.
    `scheduled` is whether it has its room (None: it has), `deferred` why it has to do with less than it asks for.
    `timer` is when something is due though nothing is the matter, `delete`: the object is to be deleted, `sample`:
    its CPU is to be sampled for the time since then, `hold`: the run that nobody may begin to use any more, `reaped`:
    what it is counted as.
    """

    memory: Memory
    reason: str = ""
    message: str = ""
    actions: tuple[Action, ...] = ()
    until: float | None = None
    events: tuple[Event, ...] = ()
    finalize: bool = False
    finished: bool = False
    drift: tuple[str, ...] = ()
    timer: float | None = None
    delete: bool = False
    sample: float | None = None
    hold: Run | None = None
    reaped: str = ""
    scheduled: Condition | None = None
    deferred: str = ""

    def wake_at(self, due: float) -> "Decision":
        """The same, and a timer that is due then."""
        return replace(self, timer=due if self.timer is None else min(self.timer, due))

    def telling(self, event: Event) -> "Decision":
        """The same, with an event before its own."""
        return replace(self, events=(event, *self.events))
