"""The desired container: one frozen value for the engine's create call, and its hash.

A field marked `mutable` is compared directly and changed in a running container. Every other field is part of the hash,
and a difference there needs a new container.
"""

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from controller.kinds.runtime.mount import Mount, Slot
from controller.kinds.runtime.user_ids import IdRange

# Moves when the meaning of a hashed field changes, so that old hashes are never compared with new ones.
HASH_SCHEMA = 1
_MUTABLE = {"mutable": True}
# Fields added later: a default value is not hashed, so that existing hashes stay the same.
_ADDED = {"added": True}
_NEVER = object()
# World-writable with the sticky bit, as every system has them; any other folder belongs to the sandbox's user.
SHARED_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 - paths inside the sandbox


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a container. `cpu_shares` 0 means "not set"; cpu, memory and pids always hold.

    `disk_bytes` and `gpus` are reserved for it; the engine gets them in fields of their own.
    """

    cpu_millicores: int
    memory_bytes: int
    pids: int
    cpu_shares: int = 0
    disk_bytes: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Tmpfs:
    """An in-memory folder; its pages count as memory of the container."""

    path: str
    size_bytes: int
    noexec: bool = True


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """The complete configuration of a sandbox's container. Rendered by policy/, carried out by engine/."""

    image: str
    """Image by name, or by id once that is pinned."""
    name: str = field(metadata=_MUTABLE)
    """Name of the container."""
    limits: Limits = field(metadata=_MUTABLE)
    """Limits, which can be changed while it runs."""
    hostname: str
    """Its host name."""
    command: tuple[str, ...] | None = None
    """Command in place of the image's; None: the image's own."""
    user: str = ""
    """User, as `uid:gid` or a name; empty: the image's."""
    working_dir: str = ""
    """Folder of its commands; empty: the image's."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables."""
    tmpfs: tuple[Tmpfs, ...] = ()
    """Folders in memory."""
    shm_bytes: int = 16 << 20
    """Size of /dev/shm."""
    network_mode: str = "none"
    """`none`, or the name of a bridge."""
    dns: tuple[str, ...] = ("127.0.0.1",)
    """Name servers."""
    read_only_root: bool = True
    """The root file system can't be written."""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that it keeps, without `CAP_`."""
    security_options: tuple[str, ...] = ("no-new-privileges:true",)
    """Security options of the engine."""
    nofile: int = 16384
    """Limit of open files, within what a host without CAP_SYS_RESOURCE may still give (the usual hard limit is 20000
    up).
    """
    oom_score_adjust: int = 500
    """Score by which the kernel chooses whom to end when the host's memory runs out: higher goes first."""
    log_max_bytes: int = 10 << 20
    """Size of a log file."""
    log_files: int = 2
    """Number of log files."""
    runtime: str = ""
    """Runtime that the spec names; empty: it names none."""
    args: tuple[str, ...] = field(default=(), metadata=_ADDED)
    """Arguments after the image's own entrypoint: only without `command`."""
    gpus: int = field(default=0, metadata=_ADDED)
    """Number of GPUs."""
    gpus_named: tuple[str, ...] = field(default=(), metadata=_ADDED)
    """Devices that the spec names; none: any."""
    gpu_ids: tuple[str, ...] = field(default=(), metadata=_MUTABLE)
    """Devices chosen when it is created; none: the engine chooses."""
    dns_options: tuple[str, ...] = field(default=(), metadata=_ADDED)
    """Options of the resolver."""
    seccomp: str = field(default="", metadata=_ADDED)
    """Name and digest of a profile of ours; empty: the engine's own."""
    sysctls: tuple[tuple[str, str], ...] = field(default=(), metadata=_ADDED)
    """Kernel settings."""
    slots: tuple[Slot, ...] = field(default=(), metadata=_ADDED)
    """Mount points for what this host binds."""
    mounts: tuple[Mount, ...] = field(default=(), metadata=_MUTABLE)
    """Mounts that are bound there."""
    joins_peers: bool = field(default=False, metadata=_MUTABLE)
    """It is on its namespace's shared bridge, too."""
    peer_names: tuple[tuple[str, str], ...] = field(default=(), metadata=_MUTABLE)
    """Further names of peers for it alone: (name, sandbox). Its main process calls them without a proxy."""
    storage_bytes: int = field(default=0, metadata=_ADDED)
    """Limit of the writable layer; 0: none is set."""
    agent: str = field(default="", metadata=_MUTABLE)
    """Image of the agent whose runtime is mounted: its id, or its name while the id is unknown; empty: no agent. A
    newer image recreates nothing. That there is an agent is hashed with the command.
    """
    models: bool = field(default=False, metadata=_MUTABLE)
    """Its main process finds the model gateway, too."""
    own_id: int = field(default=0, metadata=_ADDED)
    """Uid and gid of its own, without `user`, for an image that fits any; 0: none."""
    restore_from: str = field(default="", metadata=_ADDED)
    """Key of the snapshot that it begins from; empty: its image."""
    owned_ids: IdRange | None = field(default=None, metadata=_MUTABLE)
    """Ids of which each sandbox has its own: no image's user has one."""
    host_runtime: str = field(default="", metadata=_MUTABLE)
    """The host's choice of a runtime for a spec that names none; empty: the engine's own. A container keeps the one
    that it was created with.
    """
    holds_memory: bool = field(default=False, metadata=_MUTABLE)
    """Its folders in memory are mounts of this host's, which outlive a stop; else the engine's, which end with it. How
    a container is made is not hashed: of an existing one its `slots` tell.
    """

    @property
    def memory_mounts(self) -> tuple[Mount, ...]:
        """The folders in memory that this host mounts; none if the engine does."""
        return tuple(map(_memory_mount, self.tmpfs)) if self.holds_memory else ()

    @property
    def mount_points(self) -> tuple[Slot, ...]:
        """All slots of a new container. Those of folders in memory come last: older containers have none."""
        return (*self.slots, *(Slot(mount.path) for mount in self.memory_mounts))

    def fields(self) -> dict[str, Any]:
        """Return all fields by name."""
        return {name: getattr(self, name) for name in _names(ContainerConfig)}

    def hash(self) -> str:
        """Return the hex digest of the immutable part."""
        hashed = ((name, getattr(self, name), added) for name, added in _hashed())
        return stable_hash({name: value for name, value, added in hashed if added != value})


@cache
def _memory_mount(folder: Tmpfs) -> Mount:
    return Mount(
        folder.path,
        "tmpfs",
        size_bytes=folder.size_bytes,
        noexec=folder.noexec,
        sticky=folder.path in SHARED_FOLDERS,
    )


@cache
def _hashed() -> tuple[tuple[str, Any], ...]:
    """Return the hashed fields; a field that was added later counts where it differs from its default."""
    hashed_fields = [
        config_field for config_field in fields(ContainerConfig) if not config_field.metadata.get("mutable")
    ]
    return tuple((field_.name, field_.default if field_.metadata.get("added") else _NEVER) for field_ in hashed_fields)


def stable_hash(value: Any) -> str:
    """Return 16 hex digits of any JSON-like value (dataclasses too), equal for equal values on every machine."""
    return hashlib.sha256(_encode([HASH_SCHEMA, value]).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return {name: getattr(value, name) for name in _names(value.__class__)}


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field_info.name for field_info in fields(kind))  # type: ignore[arg-type]


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode
