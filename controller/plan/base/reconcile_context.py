"""Context of one object (its share of a snapshot) and the decision for it: the data that deciders exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from controller.kinds.host import NAME
from controller.kinds.meta import Condition, Event, StoredObject
from controller.kinds.observed.activity import Activity, Run
from controller.kinds.observed.models import ModelsState
from controller.kinds.observed.observed import Container, End, State
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import InstanceState
from controller.kinds.runtime.probe import ProbeState
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
    """Context of one Sandbox to decide on. `container` is the one that counts, `extra` any others that bear its uid.

    `rendered` is None if the spec is unreadable or refused; `refusals` are the reasons. `blind` is why the engine is
    not observable ("" if it is). `probed` are its probes' results. `lost` and `ends` are the observation's. `activity`
    is the use that this daemon observed (None: none). `short_of` are the resources of which the host is critically
    short. `network` is the state of its networks. `written_bytes` is what its container was last measured to have
    written to disk (0: not measured), `unmeasured` why it can't be measured. `stale_gpus`: the devices of its container
    are no longer its own. `lost_runtime` is its container's runtime, which the engine no longer has. `volumes` are
    removed with it, the files of `replaced_volumes` replaced by a rollback.
    `was_unguarded` is `memory.unguarded` as stored, before this pass.
    `above_quota` is the weight or priority that a later quota no longer allows ("": none).
    `models` is the state of the gateway's listener in it (None: not known). `lacks_user_id`: it is to run as an id of
    its own, and none is free. `host` is the name of this host. `taken_names` are the names of other objects'
    containers, known only after a name was in the way. `hibernation` is the ability of this host to hibernate.
    `stays_hibernated`: it may not be woken now, whatever asks for it.
    """

    now: float
    obj: StoredObject
    spec: SandboxSpec | None
    rendered: Rendered | None
    refusals: tuple[Refusal, ...]
    container: Container | None
    extra: tuple[Container, ...]
    memory: InstanceState
    instance_id: str
    blind: str = ""
    probed: ProbeState | None = None
    lost: tuple[float, float] = (0.0, 0.0)
    ends: Mapping[str, End] = field(default_factory=dict)
    activity: Activity | None = None
    short_of: tuple[str, ...] = ()
    network: NetworkContext = NOTHING
    written_bytes: int = 0
    unmeasured: str = ""
    stale_gpus: bool = False
    lost_runtime: str = ""
    volumes: tuple[str, ...] = ()
    replaced_volumes: tuple[str, ...] = ()
    was_unguarded: bool = False
    above_quota: str = ""
    models: ModelsState | None = None
    lacks_user_id: bool = False
    host: str = NAME
    taken_names: frozenset[str] = frozenset()
    hibernation: HibernationAbility = UNKNOWN_ABILITY
    stays_hibernated: bool = False

    @property
    def deleting(self) -> bool:
        return self.obj.deleted_at is not None

    @property
    def unconfined(self) -> str:
        """Reason why nothing confines its container's network any more; "" if something does, or it has none.

        A guard whose state is unreadable is neither lost nor back: its last known state counts.
        """
        box, lost = self.container, self.network.guard_lost
        if self.memory.unguarded:
            lost = lost or self.network.unguarded
        if not lost or box is None or box.state not in ALIVE:
            return ""
        is_open = self.rendered is not None and self.rendered.open is not None
        return lost if is_open or any(bridge.name in box.networks for bridge in self.network.bridges) else ""

    def event(self, reason: str, message: str, *, warning: bool = False) -> Event:
        """Return an event about this object, now."""
        return Event(self.obj.ref, "Warning" if warning else "Normal", reason, message, self.now)


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision for one object: what to do now, and its conditions.

    `reason` and `message` say why it is not ready ("" if it is as desired). `until` is the time of the next look at it
    (Unix seconds). `finalize`: all it owned is gone. `finished`: it has run to its end. `drift` names what differed.
    `scheduled` is its Scheduled condition (None: it has its capacity). `deferred` is why it runs with less than
    desired. `timer` is the time of the next lifecycle event, `delete`: the object is to be deleted, `sample`: its CPU
    is to be sampled for the time since then. `hold` is the run that nobody may begin to use any more, `release` one
    that may be used again. `reaped` is the reason that is counted for it.
    """

    memory: InstanceState
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
    release: Run | None = None
    reaped: str = ""
    scheduled: Condition | None = None
    deferred: str = ""

    def with_timer(self, due: float) -> "Decision":
        """Return the decision with a timer that is due then."""
        return replace(self, timer=due if self.timer is None else min(self.timer, due))

    def with_event(self, event: Event) -> "Decision":
        """Return the decision with an event before its own."""
        return replace(self, events=(event, *self.events))
