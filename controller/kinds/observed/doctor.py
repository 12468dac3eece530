"""Facts that `paddock doctor` collects on a host, and its findings."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from controller.kinds.host import NAME
from controller.kinds.observed.observed import HostFacts
from controller.kinds.observed.pressure import HostUse, Supply
from controller.kinds.observed.swap import HostSwap


class Severity(StrEnum):
    """Severity of a finding. A problem keeps sandboxes from running, or breaks isolation."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: the observation, its meaning for sandboxes, and the remedy (both empty if all is well)."""

    check: str
    grade: Severity
    found: str
    meaning: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The engine's answers; `trouble` says why there are none.

    `file_system` and `mount_options` are those of the engine's data folder ("" and none: not visible from here).
    `skew_seconds` is how far its clock is ahead of ours; None: unknown. `runc_version` is as the runtime reports it
    ("": none), `runc_package` the version of the host's dpkg package ("": none). `shared_users` are the users that more
    than one running sandbox has, each with the names of those.
    """

    address: str
    trouble: str = ""
    facts: HostFacts = field(default_factory=HostFacts)
    file_system: str = ""
    mount_options: tuple[str, ...] = ()
    skew_seconds: float | None = None
    runc_version: str = ""
    runc_package: str = ""
    shared_users: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Facts of this machine's kernel. None and empty: could not be read.

    `resolvers` are name servers at addresses that are not public, `dropped_resolvers` those that the guard drops.
    `resolved` and `unresolved` are package hosts that this host's name servers know, and don't know.
    """

    root: bool = False
    controllers: frozenset[str] = frozenset()
    bridges: tuple[str, ...] = ()
    forwarding: bool | None = None
    unguarded: str = ""
    resolvers: tuple[str, ...] = ()
    dropped_resolvers: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    clock_synchronised: bool | None = None
    use: HostUse = field(default_factory=lambda: HostUse(0.0))
    state_disk: Supply = field(default_factory=Supply)
    state_inodes: Supply = field(default_factory=Supply)
    swap: HostSwap = field(default_factory=HostSwap)


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """A Unix socket's file. `mode` is None if there is none; `trouble` says why it could not be read."""

    path: str
    mode: int | None = None
    owner: str = ""
    group: str = ""
    trouble: str = ""


class FailingCondition(NamedTuple):
    """A condition of a host that should hold and doesn't; `message` says so, with its own."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class HostSighting:
    """A host of the store: the version that its daemon stored ("": none), and if that holds its lease now.

    `address` is its daemon's for other hosts, and `unreachable` says why that does not answer from here ("": it does,
    or was not asked). `failing` are its conditions that should hold and don't. `images` are those it reports, if any.
    """

    name: str
    version: str
    is_alive: bool
    address: str = ""
    failing: tuple[FailingCondition, ...] = ()
    unreachable: str = ""
    images: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeSighting:
    """A host by the scheduler's word. `is_up` is None if it is not sure."""

    name: str
    is_up: bool | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The answer of the scheduler of many hosts; `trouble` says why there is none, and `reason` is its one word.

    `heartbeat_seconds` is how often it hears of a node (0: not told).
    """

    scheduler: str
    nodes: tuple[NodeSighting, ...] = ()
    reason: str = ""
    trouble: str = ""
    heartbeat_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The database. `name` hides its password; `trouble` says why it can't be read, `refuses` why it can't be written.

    `schema` is its version ("": empty, or not created yet). `is_supported`: this code can use it. `newest` is the
    version that it will be migrated to. `hosts` are those that share it, and `skew_seconds` is how far its clock is
    ahead of ours (none, and None: there is one host).
    """

    name: str
    trouble: str = ""
    refuses: str = ""
    schema: str = ""
    newest: str = ""
    is_supported: bool = True
    hosts: tuple[HostSighting, ...] = ()
    skew_seconds: float | None = None
    discarding: tuple[str, ...] = ()
    """Sandboxes (namespace/name) whose suspension loses their files in memory, but for those of model servers."""


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder of the settings. `mode` is None if there is none; `trouble` says why it could not be read.

    `roots`: root owns it. `hosts_own` says why it is a system folder ("": it is not). `maps_ids`: its owner's ids can
    be mapped to those of a sandbox (None: not tried, or unknown).
    """

    path: str
    mode: int | None = None
    owner: str = ""
    group: str = ""
    roots: bool = False
    file_system: str = ""
    hosts_own: str = ""
    maps_ids: bool | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """The existing volumes, and the prerequisites for creating one.

    `most_bytes` is of each namespace (0: volumes are off).
    """

    path: str
    count: int = 0
    held_bytes: int = 0
    most_bytes: int = 0
    makes: bool = True
    loops: bool = True


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """The process that answers at the daemon's socket. `message` is its own, or why there is none."""

    answers: bool
    ready: bool
    message: str


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """All facts that are judged together. `local`: the engine runs on this machine.

    `socket_group`, `allowed_runtimes`, `gpu_devices`, the folders and `user_ids`, the range of sandboxes' own ids,
    come from the settings, as `host`, the name of this one. `user_ids_held` are users of this host with ids in that
    range. `builds_run`: image builds may have commands (RUN). `version` is that of this program. `cluster` is None
    without a scheduler of many hosts. `certificate_days` are left of the certificate for other hosts (None: there
    is none). `hibernation_bytes` and `hibernate_to_plain_disk` are those settings. Without `keeps_sandboxes` the daemon
    only answers for the sandboxes of others, and has no engine.
    """

    local: bool
    engine: EngineFacts
    kernel: KernelFacts
    engine_socket: SocketFacts
    daemon_socket: SocketFacts
    store: StoreFacts
    daemon: DaemonFacts
    socket_group: str = ""
    socket_group_exists: bool = True
    pressure_scale: float = 1.0
    allowed_runtimes: tuple[str, ...] = ()
    gpu_devices: tuple[str, ...] = ()
    host_roots: tuple[FolderFacts, ...] = ()
    state: FolderFacts | None = None
    secrets: FolderFacts | None = None
    mounts: FolderFacts | None = None
    volumes: VolumeFacts | None = None
    user_ids: str = ""
    user_ids_held: tuple[str, ...] = ()
    host: str = NAME
    version: str = ""
    cluster: ClusterFacts | None = None
    certificate_days: float | None = None
    keeps_sandboxes: bool = True
    builds_run: bool = False
    hibernation_bytes: int | None = None
    hibernate_to_plain_disk: bool = False
