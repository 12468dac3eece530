"""Instance: the record of one container we own or are about to create. Written before the container exists.

It also holds what the planner must remember of an object across a restart of the daemon: back-off, deaths,
the pinned image. `version` is the store's compare-and-set counter.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from controller.kinds.activity import Use
from controller.kinds.container import Limits


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container's last run ended. `reason` is one of the reasons of api.md (Completed, Error, OOMKilled ...)."""

    container_id: str
    exit_code: int
    reason: str
    started_at: float
    finished_at: float


@dataclass(frozen=True, slots=True)
class Failure:
    """Engine calls that failed for this object, one after another. `count` grows the back-off.

    `retry_at` is Unix seconds; `terminal` waits for a new generation instead. `generation` is the object's
    generation that failed, `deleting` whether it was being deleted: another one of either starts afresh.
    """

    count: int
    retry_at: float
    reason: str
    message: str
    generation: int
    deleting: bool = False
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of an object's past. Only plan/ computes a new one.

    `crashes` is the number of unasked-for ends in a row (back-off), `restarts` every restart and repair of its life.
    `failure` holds up every engine call for the object, `resize` only changes of limits.
    `image_id` is the image pinned for `template` (the spec's template hash), `made_from` a hash of each template
    field of the container made last, so that a recreation can name what changed.
    `asked_to_stop` is the run (see `run`) that was sent TERM at `asked_to_stop_at`.
    `finished` is the template hash whose run is over for good ("" while none is).
    `run` is the run seen last: container id and time of start. `container` is the id of the container made last: the
    labels alone do not make one ours, for `docker commit` hands them on to an image and to whatever runs from it.
    `use` is when it was last used, `idled_generation` the spec's generation whose run was stopped for idleness (0:
    none), `expired_generation` the one whose deadline has passed, counted from `first_start`. `stop_reason` is how
    the end of the run `asked_to_stop` is to be recorded.
    """

    restarts: int = 0
    crashes: int = 0
    last_end: Termination | None = None
    failure: Failure | None = None
    resize: Failure | None = None
    image_id: str = ""
    template: str = ""
    made_from: Mapping[str, str] = field(default_factory=dict)
    asked_to_stop: tuple[str, float] = ("", 0.0)
    asked_to_stop_at: float = 0.0
    finished: str = ""
    run: tuple[str, float] = ("", 0.0)
    container: str = ""
    stop_reason: str = "Stopped"
    use: Use | None = None
    idled_generation: int = 0
    idled_at: float = 0.0
    first_start: float = 0.0
    expired_generation: int = 0
    expired_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Instance:
    name: str
    parent_uid: str
    parent_kind: str
    namespace: str
    parent_name: str
    role: str
    reserves: Limits
    created_at: float
    memory: Memory = field(default_factory=Memory)
    version: int = 0


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """Plain JSON of a memory, without what is at its default."""
    default = Memory()
    kept = [each.name for each in fields(memory) if getattr(memory, each.name) != getattr(default, each.name)]
    plain = asdict(memory)
    return {name: plain[name] for name in kept}


def memory_from_json(data: dict[str, Any]) -> Memory:
    """The memory of that JSON. Fields this version does not know (a newer daemon's) are left out."""
    known = {each.name for each in fields(Memory)}
    kept = {name: value for name, value in data.items() if name in known}
    if kept.get("last_end") is not None:
        kept["last_end"] = Termination(**kept["last_end"])
    for name in ("run", "asked_to_stop"):
        if name in kept:
            kept[name] = tuple(kept[name])
    if kept.get("use") is not None:
        kept["use"] = Use(**kept["use"])
    for name in ("failure", "resize"):
        if kept.get(name) is not None:
            kept[name] = Failure(**kept[name])
    return Memory(**kept)
