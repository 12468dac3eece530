"""What `paddock doctor` looks at on a host, and what it says of it."""

from dataclasses import dataclass, field
from enum import StrEnum

from controller.kinds.observed.observed import HostFacts
from controller.kinds.observed.pressure import HostUse, Supply


class Grade(StrEnum):
    """How a check came out. A problem keeps sandboxes from running, or lets somebody in."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, what that means for sandboxes, and what to do (both empty where all is well)."""

    check: str
    grade: Grade
    found: str
    meaning: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The engine's answers; `trouble` is why there are none, in words.

    `file_system` and `mount_options` are those that its data is on ("" and none: not to be seen from here).
    `skew_seconds` is how far its clock is ahead of ours; None: not known. `runc_version` is the runtime's own word ("":
    the engine has none), `runc_package` the version that the host's dpkg knows it by ("": by none).
    """

    address: str
    trouble: str = ""
    facts: HostFacts = field(default_factory=HostFacts)
    file_system: str = ""
    mount_options: tuple[str, ...] = ()
    skew_seconds: float | None = None
    runc_version: str = ""
    runc_package: str = ""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """This machine. None and empty: could not be read."""

    root: bool = False
    controllers: frozenset[str] = frozenset()
    bridges: tuple[str, ...] = ()
    forwarding: bool | None = None
    unguarded: str = ""
    clock_synchronised: bool | None = None
    use: HostUse = field(default_factory=lambda: HostUse(0.0))
    state_disk: Supply = field(default_factory=Supply)
    state_inodes: Supply = field(default_factory=Supply)


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """A Unix socket's file. `mode` is None where there is none; `trouble` says why it could not be looked at."""

    path: str
    mode: int | None = None
    owner: str = ""
    group: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The database. `name` hides its password; `trouble` is why it can't be read, `refuses` why it can't be written.

    `schema` is its version ("": empty, or not made yet), `known` says whether this code can use it, `newest` is the
    version that it will be brought to.
    """

    name: str
    trouble: str = ""
    refuses: str = ""
    schema: str = ""
    newest: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder of the settings. `mode` is None where there is none; `trouble` says why it could not be looked at.

    `roots`: it is root's. `hosts_own` is why it is the host's own, in words ("": it is not). `maps_ids` is whether its
    owner's ids can be those of a box in there (None: not tried, or not to be told from here).
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
    """The volumes that there are, `most_bytes` of each namespace (0: none are kept), and what it takes to make one."""

    path: str
    count: int = 0
    held_bytes: int = 0
    most_bytes: int = 0
    makes: bool = True
    loops: bool = True


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """Who answers at the daemon's socket. `words` are its own, or why there are none."""

    answers: bool
    ready: bool
    words: str


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """Everything that is judged together. `local`: the engine is this machine's.

    `socket_group`, `allowed_runtimes` and `gpu_devices` are the settings', and so are the folders.
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
    secrets: FolderFacts | None = None
    mounts: FolderFacts | None = None
    volumes: VolumeFacts | None = None
