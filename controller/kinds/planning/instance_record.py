"""Instance: the stored record of one container that we own or are about to create. Written before the container exists.

It also holds the planner's state of an object across restarts of the daemon: back-off, terminations, the pinned image.
`version` is the store's compare-and-set counter.
"""

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from controller.kinds.common.log_tail import Tail
from controller.kinds.observed.activity import StoredUse
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import SavedFiles
from controller.kinds.runtime.probe import ProbeProgress, probe_progress_from_json

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
    """The end of a container's last run. `reason` is one of END_REASONS.

    `limits` are those in force then. `generation` is that of the last spec change, `changed_at` when it was observed
    (0: unknown). `restarts` is the count before the next start. `tail` is the end of the log, None until it was read;
    `log_since` is the beginning of this run in the log.
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
    """Consecutive failures of engine calls for one object. `count` sets the back-off.

    `retry_at` is Unix seconds; `terminal` waits for a new generation instead. `generation` is the object's generation
    that failed. `deleting`: it was being deleted. A change of either starts afresh.
    `subnet` is that of the network that could not be created ("": it was another call). `absent`: another try found
    its image still missing, and it is pulled now; the failure of the last pull stays until that has ended.
    `first` is what the first of several failed starts said, where later ones say something else.
    `image` is the image that was missing ("": it was for something else).
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
    absent: bool = False
    first: str = ""
    image: str = ""


# Moving: it is being frozen, and its memory moved. Hibernated: that is done. Ending: hibernated for too long, and to be
# suspended. Waking. Lost: its container ended meanwhile, with the engine or the host.
Phase = Literal["Moving", "Hibernated", "Ending", "Waking", "Lost"]


@dataclass(frozen=True, slots=True)
class Hibernation:
    """Hibernation of one run (container id and start time) since `at`."""

    run: tuple[str, float]
    at: float
    phase: Phase = "Moving"
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class InstanceState:
    """State of an object's instance across passes. Only plan/ computes a new one.

    `crashes` counts unexpected ends in a row (back-off), `restarts` every restart and repair of its life. `failure`
    blocks every engine call for the object, `resize` only changes of limits. `image_id` is the image pinned for
    `template` (the spec's template hash). `made_from` has a hash of each template field of the last container, to name
    the changes of a recreation. `asked_to_stop` is the run that was sent TERM at `asked_to_stop_at`; `stop_reason` is
    recorded as the reason of its end. `finished` is the template hash whose run is over for good ("": none). `run` is
    the last observed run: container id and start time. `container` is the id of the last created container: labels
    alone are no proof, for `docker commit` copies them to an image and its containers. `pool` is the uid of the
    whole SandboxPool (`whole_uid`) whose member it is or was, `hostname` the name its container was created with as a
    member ("": the object's own). `launch` is `Warm`, `Cold` or empty,
    `launch_reason` the reason of a cold start. `claiming` holds until the container has the name and limits
    of the claim for the first time. `subnet` is its network's (CIDR); of a sealed one it stands in the egress
    container's record. `peers` is the subnet of the bridge shared in its namespace ("": none). `extra`, here and in its
    parts, keeps fields that this version does not know (a newer daemon's). `checked` is the probes' state of a run
    (None: no probes). `changed` is the generation observed last, and when it was first observed (0: unknown). `use` is
    its last use. `idled_generation` is the spec's generation whose run was stopped for idleness (0: none), `evicted`
    the shortage for which it was (empty: none). `expired_generation` is the one whose deadline, counted from
    `first_start`, has passed. `gpus` are the devices of its container, if the operator lists them. `reclaimed`: the
    volumes that are deleted with it are gone. `overfull` is the spec's generation whose run exceeded its disk limit,
    and its bytes (0: none). `unguarded`: it ran while no firewall protected its network, and an event says so.
    `insecure` is the failed attestation: the spec's generation, the config's hash, and the differences. `user_id` is
    the uid and gid of its own that its container runs as (0: none); no other record of its host has it. `ready_key` is
    that of a warm member that hosts other than its own may claim: equal keys are equal containers ("": not ready).
    `hibernation` is that of its container (None: none). `start_seconds` and `wake_seconds` are how long the engine took
    for the last of each (0: not known).
    `saved` are its files in memory, as the last suspension saved them (None: they are in memory, or there are none).
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
    checked: ProbeProgress | None = None

    changed: tuple[int, float] = (0, 0.0)
    use: StoredUse | None = None
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
    user_id: int = 0
    ready_key: str = ""
    hibernation: Hibernation | None = None
    start_seconds: float = 0.0
    wake_seconds: float = 0.0
    saved: SavedFiles | None = None

    def ended_by_probes(self, run: tuple[str, float]) -> str:
        """Return the reason for which probes ended that run; "" if they did not."""
        return self.checked.ended if self.checked is not None and self.checked.run == run else ""


SANDBOX, REFUSED, WARM, RETIRED = "sandbox", "refused", "warm", "retired"
_DEFAULT = InstanceState()


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance row. `role` is `sandbox`, or for a pool's member `warm` (claimable) or `retired` (being removed).

    `refused` is a sandbox that can't start as it is: the record only keeps the reason, and reserves nothing. `egress`
    is the egress container of another instance, its parent's. A member's parent is its pool, and its container's uid
    label is `member_uid`. A claim makes it the sandbox of that uid, so no label has to change. `host` is the name of
    its container's host.
    """

    name: str
    parent_uid: str
    parent_kind: str
    namespace: str
    parent_name: str
    role: str
    reserves: Limits
    created_at: float
    memory: InstanceState = field(default_factory=InstanceState)
    version: int = 0
    member_uid: str = ""
    host: str = "host"

    @property
    def uid(self) -> str:
        """Return the `paddock.uid` label of its container; unique among instances."""
        return self.member_uid or self.parent_uid


def state_to_json(memory: InstanceState) -> dict[str, Any]:
    """Return the state as plain JSON, without default values."""
    non_default = {
        name: content for name in _names(InstanceState) if (content := getattr(memory, name)) != getattr(_DEFAULT, name)
    }
    return _flat(
        {
            name: asdict(content) if is_dataclass(content) and not isinstance(content, type) else content
            for name, content in non_default.items()
        }
    )


def state_from_json(data: dict[str, Any]) -> InstanceState:
    """Return the state from its JSON. Unknown fields (a newer daemon's) are kept as `extra`."""
    parts = _sorted_out(InstanceState, data)
    if "launch_reason" not in parts and ": " in parts.get(
        "launch", ""
    ):  # as older versions stored it: `Cold: <reason>`
        parts["launch"], _, parts["launch_reason"] = parts["launch"].partition(": ")
    if parts.get("last_end") is not None:
        parts["last_end"] = _termination(parts["last_end"])
    for name in ("run", "asked_to_stop", "changed", "evicted", "insecure", "overfull", "gpus"):
        if name in parts:
            parts[name] = tuple(parts[name])
    if parts.get("use") is not None:
        parts["use"] = StoredUse(**parts["use"])
    if parts.get("saved") is not None:
        parts["saved"] = SavedFiles(**parts["saved"])
    for name in ("failure", "resize"):
        if parts.get(name) is not None:
            parts[name] = Failure(**_sorted_out(Failure, parts[name]))
    if parts.get("hibernation") is not None:
        hibernation = _sorted_out(Hibernation, parts["hibernation"])
        parts["hibernation"] = Hibernation(**{**hibernation, "run": tuple(hibernation["run"])})
    if parts.get("checked") is not None:
        parts["checked"] = probe_progress_from_json(parts["checked"])
    return InstanceState(**parts)


def _flat(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a part with its `extra` merged into its fields, recursively."""
    plain_fields = {
        name: _flat(content) if _has_extra(content) else content for name, content in plain.items() if name != "extra"
    }
    return {**plain.get("extra", {}), **plain_fields}


def _has_extra(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("extra"), Mapping)


def _sorted_out(kind: Hashable, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part by name; unknown ones go into its `extra`."""
    names = _names(kind)
    known_fields = {name: value for name, value in data.items() if name in names and name != "extra"}
    if len(known_fields) == len(data):
        return known_fields
    return {**known_fields, "extra": {name: value for name, value in data.items() if name not in known_fields}}


@cache
def _names(kind: Hashable) -> Mapping[str, None]:
    """Return the names of a dataclass's fields, in order."""
    return dict.fromkeys(field_info.name for field_info in fields(kind))  # type: ignore[arg-type]


def _termination(data: dict[str, Any]) -> Termination:
    parts = _sorted_out(Termination, data)
    if parts.get("limits") is not None:
        parts["limits"] = Limits(**parts["limits"])
    if parts.get("tail") is not None:
        parts["tail"] = Tail(tuple(parts["tail"]["lines"]), parts["tail"]["note"])
    return Termination(**parts)
