"""All that one pass of the planner looks at: desired, observed, remembered, and now. Immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from controller.kinds.action import Action
from controller.kinds.activity import Activity
from controller.kinds.instance import Instance
from controller.kinds.meta import StoredObject
from controller.kinds.observed import Observation
from controller.kinds.outcome import Outcome
from controller.kinds.sandbox import SandboxSpec, Template


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
class Result:
    """What became of one object's group of actions: the pairs carried out, in order; the last may have failed."""

    uid: str
    generation: int
    deleting: bool
    done: tuple[tuple[Action, Outcome], ...]


_NONE: Mapping[str, Instance] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pass's input. `now` is Unix seconds; every mapping is keyed by the object's uid.

    `in_flight` are objects whose actions are being carried out: they are not planned. `results` came in since the
    last pass that was stored. `instance_id` is the store's: only containers that bear it are in `observed`.
    `activity` is what this daemon has seen of each object's use; what the store keeps of it is in `instances`.
    """

    now: float
    instance_id: str
    sandboxes: Mapping[str, Sandbox]
    observed: Observation
    instances: Mapping[str, Instance] = field(default_factory=lambda: _NONE)
    in_flight: frozenset[str] = frozenset()
    results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    activity: Mapping[str, Activity] = field(default_factory=lambda: MappingProxyType({}))
