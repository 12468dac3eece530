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
    """One of our containers. Times are Unix seconds, 0 if there is none.

    `limits` are those in force: read from the cgroup while it runs, else the engine's configuration; None if they can't
    be read. `cgroups_lost`: its processes are outside of its cgroup, and nothing limits them.
    `uid`, `namespace` and `object_name` come from its labels. `pid` is PID 1's pid on the host, 0 if it does not run.
    `inside` was read in this run; None: not yet. `storage_bytes` is the limit of its writable
    layer (with its image, where the engine counts that too); 0: none. `slots` are the paths of its mount points,
    `bound` the bind mounts that this host made there. `unrecorded`: the record of them is lost.
    `peer_names` are the further names of peers that it is attached with, as in its config.
    `agent` is the volume of its agent's runtime; "": it has no agent.
    `user` is the user that it was created to run as, as the engine has it: the spec's or the image's.
    `working_dir` and `home` are the folders where its commands run, and of its user; "": `/`, and that of /etc/passwd.
    `stop_signal` is its image's, without `SIG` ("": it names none that the engine knows).
    `log_path` and `layer_path` are its log and its writable layer on the engine's machine; "" if unknown.
    `frozen_memory` is where the memory of a paused one is; None: it is not paused, or that can't be read.
    `runtime` is the engine's runtime that it was created for; "" if unknown.
    """

    id: str
    name: str
    uid: str
    state: State
    namespace: str = ""
    object_name: str = ""
    role: str = "sandbox"
    generation: int = 0
    config_hash: str = ""
    template_hash: str = ""
    image: str = ""
    image_id: str = ""
    limits: Limits | None = None
    cgroups_lost: bool = False
    pid: int = 0
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    oom_killed: bool = False
    networks: tuple[str, ...] = ()
    peer_names: tuple[tuple[str, str], ...] = ()
    error: str = ""
    out_of_band: OutOfBandSettings = OutOfBandSettings()
    inside: InsideState | None = None
    revision: int = 0
    slots: tuple[str, ...] = ()
    bound: tuple[BoundMount, ...] = ()
    unrecorded: bool = False
    storage_bytes: int = 0
    log_path: str = ""
    layer_path: str = ""
    agent: str = ""
    user: str = ""
    stop_signal: str = ""
    working_dir: str = ""
    home: str = ""
    frozen_memory: FrozenMemory | None = None
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The engine's report of the end of a container that is gone since. Evidence only: it decides nothing."""

    exit_code: int
    finished_at: float


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The engine's answers about itself; empty until it has answered once.

    `live_restore`: containers outlive the engine. `swap_limit`: the kernel can limit swap. `runtimes` are those that
    can start containers. `disk`: it can enforce a size of writable layers (None: not tried). `gpus` are the devices
    that the operator lists. `agent` is the id of the agent's image; "": it is not on this host. `engine_id` is the
    engine's own, made when it was installed ("": it tells none). `runtime_choice` is the runtime of new sandboxes
    whose spec names none (None: not chosen yet).
    """

    engine_version: str = ""
    api_version: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    cgroup_version: str = ""
    cgroup_driver: str = ""
    storage_driver: str = ""
    default_runtime: str = ""
    root_dir: str = ""
    security_options: tuple[str, ...] = ()
    live_restore: bool = False
    swap_limit: bool = False
    runtimes: tuple[str, ...] = ()
    disk: DiskAbility | None = None
    gpus: tuple[str, ...] = ()
    agent: str = ""
    engine_id: str = ""
    runtime_choice: RuntimeChoice | None = None


_NOTHING: Mapping[str, tuple[Container, ...]] = MappingProxyType({})
_NO_ENDS: Mapping[str, End] = MappingProxyType({})
_NO_NETWORKS: Mapping[str, Network] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of the engine. Immutable; each change makes a new one.

    `blind` says why the engine could not be observed ("": it was). Then `containers` is the last known state, and
    absence means nothing. A container in state UNKNOWN was listed but not read: its object is left alone. `containers`
    is keyed by the object's uid; `revision` moves with every change. `lost` is the engine's last outage (from, to; Unix
    seconds): ends of containers in it are unknown. `ends` are those of containers that are gone, by id, as far as the
    engine reported them and memory allows. `networks` are our bridges by name. `unguarded` says why the host's firewall
    does not protect them ("": it does). `guard_lost`: that is certain, and not only unreadable.
    """

    revision: int = 0
    blind: str = "not observed yet"
    at: float = 0.0
    containers: Mapping[str, tuple[Container, ...]] = field(default_factory=lambda: _NOTHING)
    facts: HostFacts = field(default_factory=HostFacts)
    lost: tuple[float, float] = (0.0, 0.0)
    ends: Mapping[str, End] = field(default_factory=lambda: _NO_ENDS)
    networks: Mapping[str, Network] = field(default_factory=lambda: _NO_NETWORKS)
    unguarded: str = "not observed yet"
    guard_lost: bool = False
