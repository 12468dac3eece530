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
    """Facts of this machine's kernel. None and empty: could not be read."""

    root: bool = False
    """True: this program runs as root."""
    controllers: frozenset[str] = frozenset()
    """Controllers of cgroup v2 (or v1) that the kernel has."""
    bridges: tuple[str, ...] = ()
    """Bridges of Docker's networks that the kernel has."""
    forwarding: bool | None = None
    """True: it forwards IPv4 packets."""
    unguarded: str = ""
    """Reason why the firewall of private addresses can't be set up; empty: it can."""
    resolvers: tuple[str, ...] = ()
    """Name servers at addresses that are not public."""
    dropped_resolvers: tuple[str, ...] = ()
    """Name servers that the guard drops."""
    clock_synchronised: bool | None = None
    """True: a time service keeps the clock."""
    use: HostUse = field(default_factory=lambda: HostUse(0.0))
    """Load and memory of the machine now."""
    state_disk: Supply = field(default_factory=Supply)
    """Space of the disk with the state folder."""
    state_inodes: Supply = field(default_factory=Supply)
    """Inodes of that disk."""
    swap: HostSwap = field(default_factory=HostSwap)
    """Swap, and what of it is on a plain disk."""


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
class DaemonFacts:
    """The process that answers at the daemon's socket. `message` is its own, or why there is none."""

    answers: bool
    ready: bool
    message: str


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """All facts that are judged together."""

    local: bool
    """True: the engine runs on this machine."""
    engine: EngineFacts
    """Answers of the engine."""
    kernel: KernelFacts
    """Facts of this machine's kernel."""
    engine_socket: SocketFacts
    """Socket of the engine."""
    daemon_socket: SocketFacts
    """Socket of this daemon's API."""
    store: StoreFacts
    """State of the store, and its schema."""
    daemon: DaemonFacts
    """State of the daemon that serves this host."""
    socket_group: str = ""
    """Setting: group that may use the daemon's socket."""
    socket_group_exists: bool = True
    """False: this host has no such group."""
    pressure_scale: float = 1.0
    """Setting: factor of the thresholds for the host's pressure."""
    gpu_devices: tuple[str, ...] = ()
    """Setting: GPUs that sandboxes may get."""
    host_roots: tuple[FolderFacts, ...] = ()
    """Setting: folders of the host that sandboxes may mount."""
    state: FolderFacts | None = None
    """Folder of the daemon's state."""
    secrets: FolderFacts | None = None
    """Folder of the operator's secrets."""
    user_ids: str = ""
    """Setting: range of sandboxes' own user ids."""
    user_ids_held: tuple[str, ...] = ()
    """Users of this host with ids in that range."""
    host: str = NAME
    """Setting: name of this host."""
    version: str = ""
    """Version of this program."""
    cluster: ClusterFacts | None = None
    """State of the scheduler of many hosts; None: there is none."""
    certificate_days: float | None = None
    """Days until the certificate for other hosts ends; None: there is none."""
    keeps_sandboxes: bool = True
    """False: the daemon only answers for the sandboxes of other hosts, and has no engine."""
    hibernation_bytes: int | None = None
    """Setting: bytes of swap that hibernated sandboxes may use together; None: all."""
    hibernate_to_plain_disk: bool = False
    """Setting: that memory may be written to a disk in the clear."""
