"""What was seen: an immutable view of our containers and of the host. Unknown is an answer of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from controller.kinds.observed.inside import Inside
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.runtime.mount import Bound
from controller.kinds.runtime.network import Network


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
class ByHand:
    """What `docker update` can set and no spec asks for. The defaults are as Paddock makes every container.

    `swap_bytes` is what may be swapped out, -1: without a limit. `cpus` and `memory_nodes` are those it is held to.
    """

    swap_bytes: int = 0
    restart_policy: str = "no"
    cpus: str = ""
    memory_nodes: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """One container of ours. Times are Unix seconds, 0 where there is none.

    `limits` are those in force: read from the cgroup while it runs, from the engine's configuration otherwise;
    None where neither could be read. `uid`, `namespace` and `object_name` are those of the object that its labels
    name. `pid` is the host's pid of PID 1, 0 when it does not run. `inside` was read in
    this run; None: not yet. `storage_bytes` is what its writable layer is held to (with its image, where the engine
    counts that too); 0: nothing. `bound` is what this host bound into it.
    `log_path` and `layer_path` are where the engine keeps its log and what it writes, on
    its own machine; "" where it does not say.
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
    pid: int = 0
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    oom_killed: bool = False
    networks: tuple[str, ...] = ()
    error: str = ""
    by_hand: ByHand = ByHand()
    inside: Inside | None = None
    revision: int = 0
    bound: tuple[Bound, ...] = ()
    storage_bytes: int = 0
    log_path: str = ""
    layer_path: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """What the engine told of the end of a container that is gone since. Evidence: it decides nothing."""

    exit_code: int
    finished_at: float


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the engine says of itself; empty until it has answered once.

    `live_restore`: containers outlive the engine. `swap_limit`: the kernel lets it limit swap. `runtimes` are those
    that it can start containers with. `disk` is whether it holds writable layers to a size (None: not tried).
    `gpus` are the devices that the operator lists.
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


_NOTHING: Mapping[str, tuple[Container, ...]] = MappingProxyType({})
_NO_ENDS: Mapping[str, End] = MappingProxyType({})
_NO_NETWORKS: Mapping[str, Network] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the engine. Immutable; a new one replaces it whenever something changed.

    `blind` is why the engine could not be looked at ("" when it could): then `containers` is what was seen last
    and absence means nothing. A container in state UNKNOWN was listed but not read: its object is left alone.
    `containers` is keyed by the uid of the object; `revision` moves with every change.
    `lost` is when the engine itself was last away (from, to; Unix seconds): what ended then went with it.
    `ends` are the ends of containers that are gone, by their id, as far as the engine told and room is.
    `networks` are our bridges by name. `unguarded` is why the host's firewall does not guard them ("" when it does),
    `guard_lost` whether that is known, and not only that it could not be read.
    """

    revision: int = 0
    blind: str = "not looked yet"
    at: float = 0.0
    containers: Mapping[str, tuple[Container, ...]] = field(default_factory=lambda: _NOTHING)
    facts: HostFacts = field(default_factory=HostFacts)
    lost: tuple[float, float] = (0.0, 0.0)
    ends: Mapping[str, End] = field(default_factory=lambda: _NO_ENDS)
    networks: Mapping[str, Network] = field(default_factory=lambda: _NO_NETWORKS)
    unguarded: str = "not looked yet"
    guard_lost: bool = False
