"""Observed state: an immutable view of our containers and of the host. Unknown is a third answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from controller.kinds.observed.inside import InsideState
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.runtime.mount import BoundMount
from controller.kinds.runtime.network import Network
from controller.kinds.runtime.run import Run
from controller.kinds.runtime.runtime_choice import RuntimeChoice


class State(StrEnum):
    """Docker's container states, and UNKNOWN for a container that is listed but could not be read."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OutOfBandSettings:
    """Settings that `docker update` can change and no spec asks for.

    The defaults are those of every container that Paddock creates. `swap_bytes` is the swap limit, -1: unlimited.
    `cpus` and `memory_nodes` are its cpuset.
    """

    swap_bytes: int = 0
    restart_policy: str = "no"
    cpus: str = ""
    memory_nodes: str = ""


@dataclass(frozen=True, slots=True)
class FrozenMemory:
    """Memory of a frozen container, in whole MiB: in memory, and in swap. Nothing moves it while it is frozen."""

    resident_bytes: int
    swapped_bytes: int


@dataclass(frozen=True, slots=True)
class Container:
    """One of our containers, as observed. Times are Unix seconds, 0 if there is none; an empty text is unknown."""

    id: str
    """Engine's id."""
    name: str
    """Name."""
    uid: str
    """Uid of its object, of its label."""
    state: State
    """State; UNKNOWN: it was listed and could not be read."""
    namespace: str = ""
    """Namespace of its object, of its label."""
    object_name: str = ""
    """Name of its object, of its label."""
    role: str = "sandbox"
    """Role: `sandbox`, `egress` and the like."""
    generation: int = 0
    """Generation of the spec that it was created for."""
    config_hash: str = ""
    """Hash of the config that it was created from."""
    template_hash: str = ""
    """Hash of the template that it was created from."""
    image: str = ""
    """Image by name."""
    image_id: str = ""
    """Image by id."""
    limits: Limits | None = None
    """Limits in force: of the cgroup while it runs, else of the engine's configuration; None: they can't be read."""
    cgroups_lost: bool = False
    """Its processes are outside of its cgroup, and nothing limits them."""
    pid: int = 0
    """Pid of its first process on the host; 0: it does not run."""
    created_at: float = 0.0
    """Creation."""
    started_at: float = 0.0
    """Last start."""
    finished_at: float = 0.0
    """Last end."""
    exit_code: int = 0
    """Exit code of its last run."""
    oom_killed: bool = False
    """The kernel ended a process of its last run for want of memory."""
    networks: tuple[str, ...] = ()
    """Networks that it is attached to."""
    peer_names: tuple[tuple[str, str], ...] = ()
    """Further names of peers that it is attached with, as in its config."""
    error: str = ""
    """Error of its last start, in the words of the engine."""
    out_of_band: OutOfBandSettings = OutOfBandSettings()
    """Settings that `docker update` can change and no spec asks for."""
    inside: InsideState | None = None
    """State read from inside in this run; None: nothing yet."""
    revision: int = 0
    """Revision of the observation in which it changed last."""
    slots: tuple[str, ...] = ()
    """Paths of its mount points."""
    bound: tuple[BoundMount, ...] = ()
    """Bind mounts that this host has put there."""
    unrecorded: bool = False
    """The record of them is lost."""
    is_used: bool = False
    """Somebody has used it since a pool's member was claimed."""
    storage_bytes: int = 0
    """Limit of its writable layer (with its image, where the engine counts that too); 0: none."""
    log_path: str = ""
    """Path of its log on the engine's machine."""
    layer_path: str = ""
    """Path of its writable layer on the engine's machine."""
    agent: str = ""
    """Volume of its agent's runtime; empty: it has no agent."""
    user: str = ""
    """User that it was created to run as: the spec's or the image's."""
    stop_signal: str = ""
    """Signal of its image, without `SIG`; empty: none that the engine knows."""
    working_dir: str = ""
    """Folder where its commands run; empty: `/`."""
    home: str = ""
    """Folder of its user; empty: that of /etc/passwd."""
    frozen_memory: FrozenMemory | None = None
    """Bytes of a paused one in memory and in swap; None: it is not paused, or that can't be read."""
    runtime: str = ""
    """Runtime of the engine that it was created for."""

    @property
    def run(self) -> Run:
        """Return its last run."""
        return Run(self.id, self.started_at)


@dataclass(frozen=True, slots=True)
class End:
    """The engine's report of the end of a container that is gone since. Evidence only: it decides nothing."""

    exit_code: int
    finished_at: float


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The engine's answers about itself; empty until it has answered once."""

    engine_version: str = ""
    """Version of the engine."""
    api_version: str = ""
    """Version of its API that is spoken."""
    cpus: int = 0
    """Number of CPUs."""
    memory_bytes: int = 0
    """Memory of the machine."""
    cgroup_version: str = ""
    """Version of control groups: 1 or 2."""
    cgroup_driver: str = ""
    """Their maker: cgroupfs or systemd."""
    storage_driver: str = ""
    """Driver of image layers, such as overlay2."""
    default_runtime: str = ""
    """Runtime of containers that name none."""
    root_dir: str = ""
    """Folder of the engine's data."""
    security_options: tuple[str, ...] = ()
    """Security features of the engine."""
    live_restore: bool = False
    """Containers outlive the engine."""
    swap_limit: bool = False
    """The kernel can limit swap."""
    runtimes: tuple[str, ...] = ()
    """Runtimes that can start containers."""
    disk: DiskAbility | None = None
    """Ability to enforce a size of writable layers; None: not tried."""
    gpus: tuple[str, ...] = ()
    """Devices that the operator lists."""
    agent: str = ""
    """Id of the agent's image; empty: it is not on this host."""
    engine_id: str = ""
    """The engine's own id, made when it was installed; empty: it tells none."""
    runtime_choice: RuntimeChoice | None = None
    """Runtime of new sandboxes whose spec names none; None: not chosen yet."""


_NOTHING: Mapping[str, tuple[Container, ...]] = MappingProxyType({})
_NO_ENDS: Mapping[str, End] = MappingProxyType({})
_NO_NETWORKS: Mapping[str, Network] = MappingProxyType({})


NOT_YET = "not observed yet"


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of the engine. Immutable; each change makes a new one."""

    revision: int = 0
    """Counter that moves with every change."""
    blind: str = NOT_YET
    """Reason why the engine can't be observed. Then `containers` is the last known state, and absence means nothing."""
    at: float = 0.0
    """Time of the last full look (Unix seconds)."""
    containers: Mapping[str, tuple[Container, ...]] = field(default_factory=lambda: _NOTHING)
    """Containers by the uid of their object. One in state UNKNOWN was listed but not read: its object is left alone."""
    facts: HostFacts = field(default_factory=HostFacts)
    """The engine's answers about itself."""
    lost: tuple[float, float] = (0.0, 0.0)
    """Last outage of the engine (from, to; Unix seconds): ends of containers in it are unknown."""
    ends: Mapping[str, End] = field(default_factory=lambda: _NO_ENDS)
    """Ends of containers that are gone, by id, as far as the engine reported them."""
    networks: Mapping[str, Network] = field(default_factory=lambda: _NO_NETWORKS)
    """Our bridges, by name."""
    unguarded: str = NOT_YET
    """Reason why the host's firewall does not protect them; empty: it does."""
    guard_lost: bool = False
    """That is certain, and not only unreadable."""

    @property
    def is_pending(self) -> bool:
        """Return True until the engine was observed once, or could not be."""
        return self.blind == NOT_YET
