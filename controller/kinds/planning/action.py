"""Actions of a plan. One action is one engine call, idempotent, with its reason.

An empty `container_id` means the container of that name which the same group has just created.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.mount import BindMounts, CheckFiles, RemoveFiles, RemoveVolumes, SaveFiles
from controller.kinds.runtime.network import EnsureNetwork, RemoveNetwork
from controller.kinds.runtime.snapshot import RestoreRoot


@dataclass(frozen=True, slots=True)
class PullImage:
    verb: ClassVar[str] = "pull"

    image: str
    why: str

    def __str__(self) -> str:
        return f"pull {self.image}"


@dataclass(frozen=True, slots=True)
class BuildImage:
    """Build one of Paddock's own images from its recipe on this host. An image that is here is a success.

    It never waits for the build: the outcome is `Waiting` until that has ended.
    """

    verb: ClassVar[str] = "build"

    image: str
    why: str

    def __str__(self) -> str:
        return f"build {self.image}"


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Create `config.name` with `labels`, from `image_id` if it is pinned already, else from `config.image`."""

    verb: ClassVar[str] = "create"

    uid: str
    config: ContainerConfig
    labels: Mapping[str, str]
    why: str
    image_id: str = ""

    def __str__(self) -> str:
        return f"create {self.config.name} from {self.image_id or self.config.image}"


@dataclass(frozen=True, slots=True)
class StartContainer:
    verb: ClassVar[str] = "start"

    uid: str
    name: str
    why: str
    container_id: str = ""

    def __str__(self) -> str:
        return f"start {self.name}"


@dataclass(frozen=True, slots=True)
class SignalContainer:
    """Send a signal to PID 1. Does not wait: the planner counts the grace period and sends KILL itself."""

    verb: ClassVar[str] = "signal"

    uid: str
    name: str
    container_id: str
    signal: str
    why: str

    def __str__(self) -> str:
        return f"signal {self.signal} {self.name}"


@dataclass(frozen=True, slots=True)
class PauseContainer:
    verb: ClassVar[str] = "pause"

    uid: str
    name: str
    container_id: str
    why: str

    def __str__(self) -> str:
        return f"pause {self.name}"


@dataclass(frozen=True, slots=True)
class UnpauseContainer:
    verb: ClassVar[str] = "unpause"

    uid: str
    name: str
    container_id: str
    why: str

    def __str__(self) -> str:
        return f"unpause {self.name}"


@dataclass(frozen=True, slots=True)
class HibernateContainer:
    """Pause it, and move its memory to swap; of a paused one the memory alone. What stays in memory is no failure."""

    verb: ClassVar[str] = "hibernate"

    uid: str
    name: str
    container_id: str
    why: str

    def __str__(self) -> str:
        return f"hibernate {self.name}"


@dataclass(frozen=True, slots=True)
class WakeContainer:
    """Unpause a hibernated container. Its memory comes back as its processes use it."""

    verb: ClassVar[str] = "wake"

    uid: str
    name: str
    container_id: str
    why: str

    def __str__(self) -> str:
        return f"wake {self.name}"


@dataclass(frozen=True, slots=True)
class UpdateLimits:
    verb: ClassVar[str] = "update"

    uid: str
    name: str
    container_id: str
    limits: Limits
    why: str

    def __str__(self) -> str:
        limits = self.limits
        shares = f" shares={limits.cpu_shares}" if limits.cpu_shares else ""
        cpu, memory = format_cpu(limits.cpu_millicores), format_bytes(limits.memory_bytes)
        return f"update {self.name} cpu={cpu} memory={memory} pids={limits.pids}{shares}"


@dataclass(frozen=True, slots=True)
class RenameContainer:
    verb: ClassVar[str] = "rename"

    uid: str
    name: str
    container_id: str
    was: str
    why: str

    def __str__(self) -> str:
        return f"rename {self.was} to {self.name}"


@dataclass(frozen=True, slots=True)
class DisconnectNetwork:
    """Disconnect a container from a network that no spec asks for."""

    verb: ClassVar[str] = "disconnect"

    uid: str
    name: str
    container_id: str
    network: str
    why: str

    def __str__(self) -> str:
        return f"disconnect {self.name} from {self.network}"


@dataclass(frozen=True, slots=True)
class ConnectNetwork:
    """Connect a container to a network, with that `address` if one is given, else with any of the network's.

    `aliases` are its names for others on the network, `peer_names` those of others for it alone: (name, sandbox).
    """

    verb: ClassVar[str] = "connect"

    uid: str
    name: str
    container_id: str
    network: str
    why: str
    address: str = ""
    aliases: tuple[str, ...] = ()
    peer_names: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"connect {self.name} to {self.network}" + (f" as {self.address}" if self.address else "")


@dataclass(frozen=True, slots=True)
class ReadTail:
    """Read the end of the log of a container that ended at `finished_at`, as evidence. An unreadable log is no failure.

    `since` is the beginning of this run in the log (Unix seconds; 0: the whole log).
    """

    verb: ClassVar[str] = "read"

    uid: str
    name: str
    container_id: str
    finished_at: float
    why: str
    since: float = 0.0

    def __str__(self) -> str:
        return f"read the log of {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """Remove by id, running or not, with its anonymous volumes. A missing container is a success.

    `replaced`: another one is made for the object, and what it has mounted stays until then.
    """

    verb: ClassVar[str] = "remove"

    uid: str
    name: str
    container_id: str
    why: str
    replaced: bool = False

    def __str__(self) -> str:
        return f"remove {self.name}"


Action = (
    PullImage
    | BuildImage
    | CreateContainer
    | StartContainer
    | SignalContainer
    | PauseContainer
    | UnpauseContainer
    | HibernateContainer
    | WakeContainer
    | UpdateLimits
    | RenameContainer
    | DisconnectNetwork
    | ConnectNetwork
    | ReadTail
    | RemoveContainer
    | EnsureNetwork
    | RemoveNetwork
    | BindMounts
    | RemoveVolumes
    | CheckFiles
    | SaveFiles
    | RemoveFiles
    | RestoreRoot
)
