"""State of an object's instance across passes and restarts of the daemon, as records by subject.

Only plan/ computes a new one. It is stored flat (instance_json.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from controller.kinds.common.log_tail import Tail
from controller.kinds.observed.activity import StoredUse
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import SavedFiles
from controller.kinds.runtime.probe import ProbeProgress
from controller.kinds.runtime.run import NO_RUN, Run

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
    """Hibernation of one run."""

    run: Run
    """Run that hibernates: it ends with it."""
    at: float
    """When the phase began (Unix seconds)."""
    phase: Phase = "Moving"
    """Phase, of those above."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know (a newer daemon's), kept as they are."""


class GenerationTime(NamedTuple):
    """A generation of the object's spec, and a time of it (Unix seconds)."""

    generation: int = 0
    at: float = 0.0


class StopRequest(NamedTuple):
    """The last stop that Paddock asked a run for."""

    run: Run = NO_RUN
    """Run that was sent TERM."""
    at: float = 0.0
    """When it was (Unix seconds)."""
    reason: str = "Stopped"
    """Reason that is recorded for the end of that run."""


class FailedAttestation(NamedTuple):
    """A container that was not as rendered inside."""

    generation: int = 0
    """Generation of the object then."""
    config_hash: str = ""
    """Hash of the config that it was compared with."""
    differences: str = ""
    """Differences, for people; empty: none failed."""


class DiskExcess(NamedTuple):
    """Bytes written beyond a soft disk limit."""

    generation: int = 0
    """Generation whose run wrote them."""
    written_bytes: int = 0
    """Bytes; 0: none were too many."""


_NO_TIME, _NO_STOP, _NO_FAILED_ATTESTATION, _NO_EXCESS = (
    GenerationTime(),
    StopRequest(),
    FailedAttestation(),
    DiskExcess(),
)


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """The container that was created last, and what it was created from."""

    id: str = ""
    """Its id. Labels alone are no proof: `docker commit` copies them to an image, and so to its containers."""
    hostname: str = ""
    """Name with which it was created as a member; empty: the object's own."""
    image_id: str = ""
    """Image pinned for `template`: restarts use the same one."""
    template: str = ""
    """Template hash."""
    template_fields: Mapping[str, str] = field(default_factory=dict)
    """Hash of each template field: they name what changed when it is created anew."""
    gpus: tuple[str, ...] = ()
    """Devices, where the operator lists them."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Runs of its containers: the last one, its end, and their counts."""

    last: Run = NO_RUN
    """Run that was observed last."""
    last_end: Termination | None = None
    """End of the last run that ended; None: none did yet."""
    restarts: int = 0
    """Restarts and repairs of its whole life."""
    crashes: int = 0
    """Unexpected ends in a row; sets the back-off."""
    finished: str = ""
    """Template hash whose run is over for good."""
    first_start: float = 0.0
    """First start (Unix seconds), from which its deadline counts."""
    start_seconds: float = 0.0
    """Seconds that the engine took for its last start."""
    stop: StopRequest = _NO_STOP
    """Stop that was asked for last."""
    probes: ProbeProgress | None = None
    """Results of its probes in a run; None: it has none."""

    def ended_by_probes(self, run: Run) -> str:
        """Return the reason for which probes ended that run; "" if they did not."""
        return self.probes.ended if self.probes is not None and self.probes.run == run else ""


@dataclass(frozen=True, slots=True)
class BackoffRecord:
    """Failures that block engine calls for the object."""

    failure: Failure | None = None
    """Failure that blocks every call."""
    resize: Failure | None = None
    """Failure that blocks changes of its limits alone."""


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """Its pool, and how it came to its container."""

    pool: str = ""
    """Uid of the whole pool (`whole_uid`) whose member it is or was."""
    launch: str = ""
    """Kind of its start: Warm, Cold, or empty."""
    launch_reason: str = ""
    """Reason of a cold start."""
    is_pending: bool = False
    """True until the container first has the name and the limits of its claim."""
    ready_key: str = ""
    """Key of a warm member that hosts other than its own may claim: equal keys are equal containers."""


@dataclass(frozen=True, slots=True)
class NetworkRecord:
    """Networks of its container."""

    subnet: str = ""
    """Subnet of its network (CIDR); that of a sealed one stands in the record of its egress container."""
    peers_subnet: str = ""
    """Subnet of the bridge that its namespace shares."""


@dataclass(frozen=True, slots=True)
class SecurityRecord:
    """Findings about its isolation, and its identity on the host."""

    failed_attestation: FailedAttestation = _NO_FAILED_ATTESTATION
    """Attestation that failed last."""
    is_unguarded: bool = False
    """It ran while no firewall protected its network, and an event said so."""
    user_id: int = 0
    """Uid and gid of its own that its container runs as: no other record of its host has it."""


@dataclass(frozen=True, slots=True)
class LifecycleRecord:
    """Its use, and the ends that its spec and the host's limits set."""

    changed: GenerationTime = _NO_TIME
    """Generation that was observed last, and when it first was."""
    use: StoredUse | None = None
    """Its last use."""
    idled: GenerationTime = _NO_TIME
    """Generation whose run was stopped for idleness, and when."""
    evicted_for: tuple[str, ...] = ()
    """Resources that were short when its run was stopped for that."""
    expired: GenerationTime = _NO_TIME
    """Generation whose deadline has passed, and when it had."""
    disk_excess: DiskExcess = _NO_EXCESS
    """Excess of its disk limit."""
    volumes_reclaimed: bool = False
    """The volumes that are deleted with it are gone."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """Its memory and the files in it, while it does not run."""

    hibernation: Hibernation | None = None
    """Hibernation of its container."""
    wake_seconds: float = 0.0
    """Seconds that its last wake took."""
    saved_files: SavedFiles | None = None
    """Its files in memory, as the last suspension saved them; None: they are in memory, or it has none."""


_NO_CONTAINER, _NO_RUNS, _NO_FAILURES, _NO_CLAIM = ContainerRecord(), RunRecord(), BackoffRecord(), ClaimRecord()
_NO_NETWORK, _NO_FINDINGS = NetworkRecord(), SecurityRecord()
_NEW_LIFE, _NO_MEMORY = LifecycleRecord(), MemoryRecord()


@dataclass(frozen=True, slots=True)
class InstanceState:
    """State of an object's instance. Every default means that there is none; states share the records of defaults."""

    container: ContainerRecord = _NO_CONTAINER
    """The container that was created last."""
    runs: RunRecord = _NO_RUNS
    """Runs of its containers."""
    backoff: BackoffRecord = _NO_FAILURES
    """Failures that block calls."""
    claim: ClaimRecord = _NO_CLAIM
    """Its pool and its launch."""
    network: NetworkRecord = _NO_NETWORK
    """Networks of its container."""
    security: SecurityRecord = _NO_FINDINGS
    """Findings about its isolation."""
    lifecycle: LifecycleRecord = _NEW_LIFE
    """Its use and its ends."""
    memory: MemoryRecord = _NO_MEMORY
    """Hibernation and saved files."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields that this version does not know (a newer daemon's), kept as they are."""
