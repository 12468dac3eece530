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
    """The end of a container's last run."""

    container_id: str
    """Engine's id of the container."""
    exit_code: int
    """Exit code of its first process."""
    reason: str
    """Reason of its end: one of END_REASONS."""
    started_at: float
    """Start of the run (Unix seconds)."""
    finished_at: float
    """End of the run (Unix seconds)."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know (a newer daemon's), kept as they are."""
    limits: Limits | None = None
    """Limits in force when it ended; None: unknown."""
    generation: int = 0
    """Generation of the last spec change before the end; 0: unknown."""
    changed_at: float = 0.0
    """When that generation was observed (Unix seconds); 0: unknown."""
    restarts: int = 0
    """Restarts before the next start."""
    tail: Tail | None = None
    """End of its log; None until it was read."""
    log_since: float = 0.0
    """Begin of this run in the log (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Consecutive failures of engine calls for one object. A change of its generation or a deletion starts afresh."""

    count: int
    """Failures in a row; sets the back-off."""
    retry_at: float
    """Time of the next try (Unix seconds)."""
    reason: str
    """Reason of the condition, such as ImagePullFailed."""
    message: str
    """Message of the engine, for people."""
    generation: int
    """Generation of the object that failed."""
    deleting: bool = False
    """It failed while the object was being deleted."""
    terminal: bool = False
    """It waits for a new generation, not for a time."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know (a newer daemon's), kept as they are."""
    subnet: str = ""
    """Subnet of the network that could not be created; empty: it was another call."""
    absent: bool = False
    """Another try found its image still missing, and it is pulled now; the failure of the last pull stays until that
    has ended.
    """
    first: str = ""
    """Message of the first of several failed starts, where later ones say something else."""
    image: str = ""
    """Image that was missing; empty: it was for something else."""


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

    A field with `generation` in its name is that of the object's spec; every default means that there is none.
    """

    restarts: int = 0
    """Restarts and repairs of its whole life."""
    crashes: int = 0
    """Unexpected ends in a row; sets the back-off."""
    last_end: Termination | None = None
    """End of its last run; None: none ended yet."""
    failure: Failure | None = None
    """Failure that blocks every engine call for the object."""
    resize: Failure | None = None
    """Failure that blocks changes of its limits alone."""
    image_id: str = ""
    """Image pinned for `template`: restarts use the same one."""
    template: str = ""
    """Template hash of its container."""
    made_from: Mapping[str, str] = field(default_factory=dict)
    """Hash of each template field of its container: they name what changed when it is created anew."""
    asked_to_stop: tuple[str, float] = ("", 0.0)
    """Run (container id, start time) that was sent TERM."""
    asked_to_stop_at: float = 0.0
    """When it was (Unix seconds)."""
    stop_reason: str = "Stopped"
    """Reason that is recorded for the end of that run."""
    finished: str = ""
    """Template hash whose run is over for good."""
    run: tuple[str, float] = ("", 0.0)
    """Run that was observed last: container id and start time."""
    container: str = ""
    """Id of the container that was created last. Labels alone are no proof: `docker commit` copies them to an image,
    and so to its containers.
    """
    pool: str = ""
    """Uid of the whole pool (`whole_uid`) whose member it is or was."""
    hostname: str = ""
    """Name with which its container was created as a member; empty: the object's own."""
    launch: str = ""
    """Kind of its start: Warm, Cold, or empty."""
    launch_reason: str = ""
    """Reason of a cold start."""
    claiming: bool = False
    """True until the container first has the name and the limits of its claim."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know (a newer daemon's), kept as they are."""
    checked: ProbeProgress | None = None
    """Results of its probes in a run; None: it has none."""

    changed: tuple[int, float] = (0, 0.0)
    """Generation that was observed last, and when it first was (Unix seconds)."""
    use: StoredUse | None = None
    """Its last use."""
    idled_generation: int = 0
    """Generation whose run was stopped for idleness."""
    idled_at: float = 0.0
    """When it was (Unix seconds)."""
    evicted: tuple[str, ...] = ()
    """Resources that were short when its run was stopped for that."""
    first_start: float = 0.0
    """First start (Unix seconds), from which its deadline counts."""
    expired_generation: int = 0
    """Generation whose deadline has passed."""
    expired_at: float = 0.0
    """When it had (Unix seconds)."""
    subnet: str = ""
    """Subnet of its network (CIDR); that of a sealed one stands in the record of its egress container."""
    insecure: tuple[int, str, str] = (0, "", "")
    """Failed attestation: generation, hash of the config, and the differences."""
    overfull: tuple[int, int] = (0, 0)
    """Generation whose run exceeded its disk limit, and the bytes."""
    gpus: tuple[str, ...] = ()
    """Devices of its container, where the operator lists them."""
    peers: str = ""
    """Subnet of the bridge that its namespace shares."""
    reclaimed: bool = False
    """The volumes that are deleted with it are gone."""
    unguarded: bool = False
    """It ran while no firewall protected its network, and an event said so."""
    user_id: int = 0
    """Uid and gid of its own that its container runs as: no other record of its host has it."""
    ready_key: str = ""
    """Key of a warm member that hosts other than its own may claim: equal keys are equal containers."""
    hibernation: Hibernation | None = None
    """Hibernation of its container."""
    start_seconds: float = 0.0
    """Seconds that the engine took for its last start."""
    wake_seconds: float = 0.0
    """Seconds that its last wake took."""
    saved: SavedFiles | None = None
    """Its files in memory, as the last suspension saved them; None: they are in memory, or it has none."""

    def ended_by_probes(self, run: tuple[str, float]) -> str:
        """Return the reason for which probes ended that run; "" if they did not."""
        return self.checked.ended if self.checked is not None and self.checked.run == run else ""


SANDBOX, REFUSED, WARM, RETIRED = "sandbox", "refused", "warm", "retired"
_DEFAULT = InstanceState()


@dataclass(frozen=True, slots=True)
class Instance:
    """One row of the table of instances: a container that we own, or are about to create.

    A claim makes a pool's member the sandbox that claims it; no label of its container has to change.
    """

    name: str
    """Name of its container."""
    parent_uid: str
    """Uid of its sandbox; of a pool's member, that of the pool; of an egress container, that of the instance it serves.
    """
    parent_kind: str
    """Kind of the parent."""
    namespace: str
    """Namespace of the parent."""
    parent_name: str
    """Name of the parent."""
    role: str
    """`sandbox`; of a pool's member `warm` (it may be claimed) or `retired` (it is being removed); `refused`: a sandbox
    that can't start as it is, of which only the reason is kept, and which reserves nothing.
    """
    reserves: Limits
    """Limits that it counts for in quotas and on its host."""
    created_at: float
    """When the row was written (Unix seconds)."""
    state: InstanceState = field(default_factory=InstanceState)
    """State of the planner about it."""
    version: int = 0
    """Counter of the store's compare-and-set."""
    member_uid: str = ""
    """Uid in its container's label, of a member of a pool; empty: the parent's."""
    host: str = "host"
    """Name of the host of its container."""

    @property
    def uid(self) -> str:
        """Return the `paddock.uid` label of its container; unique among instances."""
        return self.member_uid or self.parent_uid


def state_to_json(state: InstanceState) -> dict[str, Any]:
    """Return the state as plain JSON, without default values."""
    non_default = {
        name: content for name in _names(InstanceState) if (content := getattr(state, name)) != getattr(_DEFAULT, name)
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
