"""Instance: the record of one container we own or are about to create. Written before the container exists.

It also holds what the planner must remember of an object across a restart of the daemon: back-off, deaths,
the pinned image. `version` is the store's compare-and-set counter.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from controller.kinds.common.log_tail import Tail
from controller.kinds.observed.activity import Use
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.probe import Checked, checked_from_json

# Why a run came to its end; one list everywhere.
END_REASONS = (
    "Completed",
    "Error",
    "OOMKilled",
    "Killed",
    "Stopped",
    "DeadlineExceeded",
    "IdleReaped",
    "Evicted",
    "StartFailed",
    "EngineLost",
    "Superseded",
)


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container's last run ended: the death record. `reason` is one of END_REASONS.

    `limits` are those that held then, `generation` the one of the last spec change and `changed_at` when that was
    noticed (0: not known), `restarts` the count before it was started again. `tail` is the end of the log, None
    until it was read; `log_since` is where this run's part of the log begins.
    """

    container_id: str
    exit_code: int
    reason: str
    started_at: float
    finished_at: float
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    limits: Limits | None = None
    generation: int = 0
    changed_at: float = 0.0
    restarts: int = 0
    tail: Tail | None = None
    log_since: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Engine calls that failed for this object, one after another. `count` grows the back-off.

    `retry_at` is Unix seconds; `terminal` waits for a new generation instead. `generation` is the object's
    generation that failed, `deleting` whether it was being deleted: another one of either starts afresh.
    `subnet` is that of the network that could not be created ("": it was another call).
    """

    count: int
    retry_at: float
    reason: str
    message: str
    generation: int
    deleting: bool = False
    terminal: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    subnet: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of an object's past. Only plan/ computes a new one.

    `crashes` is the number of unasked-for ends in a row (back-off), `restarts` every restart and repair of its life.
    `failure` holds up every engine call for the object, `resize` only changes of limits.
    `image_id` is the image pinned for `template` (the spec's template hash), `made_from` a hash of each template
    field of the container made last, so that a recreation can name what changed.
    `asked_to_stop` is the run (see `run`) that was sent TERM at `asked_to_stop_at`, to end for `stop_reason`.
    `finished` is the template hash whose run is over for good ("" while none is).
    `run` is the run seen last: container id and time of start. `container` is the id of the container made last: the
    labels alone do not make one ours, for `docker commit` hands them on to an image and to whatever runs from it.
    `pool` is the uid of the SandboxPool whose member it was or is, `hostname` the name its container was made with as
    a member ("": the object's own). `launch` is how it was launched (`Warm`, `Cold`, ""), `launch_reason` why.
    `claiming` holds until what a claim changes in the container (name, limits) is in force for the first time.
    `subnet` is what its network is on (CIDR): of a sealed one it stands in the egress container's record. `peers` is
    what the bridge is on that it shares with others of its namespace ("": it shares none).
    `extra`, here and in its parts, are fields that this version does not know (a newer daemon's): they are kept.
    `checked` is what the probes of a run have shown (None: it never had any).
    `changed` is the generation seen last, and when it was first seen (0: not known).
    `use` is when it was last used, `idled_generation` the spec's generation whose run was stopped for idleness (0:
    none), `evicted` what the host was short of when it was (empty: of nothing),
    `expired_generation` the one whose deadline has passed, counted from `first_start`. `stop_reason` is how
    the end of the run `asked_to_stop` is to be recorded.
    `gpus` are the devices that its container was made with, where the operator lists them. `reclaimed`: the volumes
    that go with it are gone.
    `overfull` is the spec's generation whose run wrote more to disk than it may, and how many bytes (0: none did).
    `unguarded`: it was seen to run while nothing confined its network, and was told so.
    `insecure` is what was not secured when it ran: the spec's generation, the config's hash, and what differed.
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
    stop_reason: str = "Stopped"
    finished: str = ""
    run: tuple[str, float] = ("", 0.0)
    container: str = ""
    pool: str = ""
    hostname: str = ""
    launch: str = ""
    launch_reason: str = ""
    claiming: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    checked: Checked | None = None

    changed: tuple[int, float] = (0, 0.0)
    use: Use | None = None
    idled_generation: int = 0
    idled_at: float = 0.0
    evicted: tuple[str, ...] = ()
    first_start: float = 0.0
    expired_generation: int = 0
    expired_at: float = 0.0
    subnet: str = ""
    insecure: tuple[int, str, str] = (0, "", "")
    overfull: tuple[int, int] = (0, 0)
    gpus: tuple[str, ...] = ()
    peers: str = ""
    reclaimed: bool = False
    unguarded: bool = False

    def ended_by_probes(self, run: tuple[str, float]) -> str:
        """The reason for which Paddock stopped that run because of its probes; "" when it did not."""
        return self.checked.ended if self.checked is not None and self.checked.run == run else ""


SANDBOX, REFUSED = "sandbox", "refused"


@dataclass(frozen=True, slots=True)
class Instance:
    """One row. `role` is `sandbox`, or for a pool's member `warm` (a claim may take it) or `retired` (it goes).

    `refused` is a sandbox's that can't start as it is: the record only remembers why, and holds nothing.

    `egress` is that of the container through which another one, its parent's, reaches what it may.

    A member's parent is its pool, and `member_uid` what its container's labels bear. A claim makes it the sandbox
    of that uid: so nothing about the container has to change hands.
    """

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
    member_uid: str = ""

    @property
    def uid(self) -> str:
        """What its container's `paddock.uid` label bears; unique among instances."""
        return self.member_uid or self.parent_uid


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """Plain JSON of a memory, without what is at its default."""
    default = Memory()
    kept = [each.name for each in fields(memory) if getattr(memory, each.name) != getattr(default, each.name)]
    plain = asdict(memory)
    return _flat({name: plain[name] for name in kept})


def memory_from_json(data: dict[str, Any]) -> Memory:
    """The memory of that JSON. Fields this version does not know (a newer daemon's) are kept as `extra`."""
    kept = _sorted_out(Memory, data)
    if "launch_reason" not in kept and ": " in kept.get("launch", ""):  # as older versions stored it: `Cold: <reason>`
        kept["launch"], _, kept["launch_reason"] = kept["launch"].partition(": ")
    if kept.get("last_end") is not None:
        kept["last_end"] = _termination(kept["last_end"])
    for name in ("run", "asked_to_stop", "changed", "evicted", "insecure", "overfull", "gpus"):
        if name in kept:
            kept[name] = tuple(kept[name])
    if kept.get("use") is not None:
        kept["use"] = Use(**kept["use"])
    for name in ("failure", "resize"):
        if kept.get(name) is not None:
            kept[name] = Failure(**_sorted_out(Failure, kept[name]))
    if kept.get("checked") is not None:
        kept["checked"] = checked_from_json(kept["checked"])
    return Memory(**kept)


def _flat(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a part with its `extra` beside its fields, where it was found, and the same in its parts."""
    known = {name: _flat(each) if _has_extra(each) else each for name, each in plain.items() if name != "extra"}
    return {**plain.get("extra", {}), **known}


def _has_extra(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("extra"), Mapping)


def _sorted_out(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a part by name, with what it does not know as its `extra`."""
    known = {each.name for each in fields(kind)} - {"extra"}
    found = {name: value for name, value in data.items() if name in known}
    extra = {name: value for name, value in data.items() if name not in known}
    return {**found, "extra": extra} if extra else found


def _termination(data: dict[str, Any]) -> Termination:
    kept = _sorted_out(Termination, data)
    if kept.get("limits") is not None:
        kept["limits"] = Limits(**kept["limits"])
    if kept.get("tail") is not None:
        kept["tail"] = Tail(tuple(kept["tail"]["lines"]), kept["tail"]["note"])
    return Termination(**kept)
