"""Quota: maxima for the sandboxes of one namespace together, and for each. HostQuota is the host's.

Limits are counted, not use: a sandbox reserves its limits from before its container exists until it is observed
stopped. It counts as a sandbox from admission until it is gone, suspended or finished too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from controller.kinds.base import Model, Whole
from controller.kinds.common.quantity import BytesQuantity, CpuQuantity, format_bytes, format_cpu
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import age

_Cpu = Annotated[CpuQuantity | None, Field(ge=0, le=1_000_000_000)]
_Memory = Annotated[BytesQuantity | None, Field(ge=0, le=1 << 60)]
_Count = Annotated[Whole | None, Field(ge=0, le=1 << 40)]


class HardLimits(Model):
    """Maxima of all sandboxes together. A field left out is not bounded by this quota."""

    cpu: _Cpu = None
    """Sum of CPU limits of running and starting sandboxes."""
    memory: _Memory = None
    """Sum of memory limits of running and starting sandboxes."""
    pids: _Count = None
    """Sum of pids limits (processes and threads) of running and starting sandboxes."""
    sandboxes: _Count = None
    """Number of sandboxes, including suspended and finished ones."""
    disk: _Memory = None
    """Sum of disk reservations of sandboxes, including stopped ones, and of the saved files of suspended ones."""
    gpus: _Count = None
    """Sum of GPUs of running and starting sandboxes."""


class PerSandbox(Model):
    """Maxima of one sandbox. A field left out is not bounded by this quota."""

    cpu: _Cpu = None
    """CPU time."""
    memory: _Memory = None
    """Memory, including tmpfs contents."""
    pids: _Count = None
    """Processes and threads."""
    disk: _Memory = None
    """Disk reservation."""
    gpus: _Count = None
    """GPUs."""


class PoolQuota(Model):
    """Maxima of one pool's members and claimed sandboxes together, and of each."""

    cpu: _Cpu = None
    """Sum of CPU limits."""
    memory: _Memory = None
    """Sum of memory limits."""
    pids: _Count = None
    """Sum of pids limits (processes and threads)."""
    per_sandbox: PerSandbox = PerSandbox()
    """Maxima of one sandbox of the pool."""

    @property
    def hard(self) -> HardLimits:
        """Return the limits for all together, in the form of a Quota."""
        return HardLimits(cpu=self.cpu, memory=self.memory, pids=self.pids)


class HardQuota(HardLimits):
    """Maxima of a namespace. `objects` counts stored ones of any kind; left out, the daemon's own limit holds."""

    objects: _Count = None
    """Number of objects of any kind in the namespace. Default: the daemon's own limit."""
    annotations: _Memory = None
    """Size of the annotations of all objects in the namespace. Default: the daemon's own limit."""
    snapshots: _Count = None
    """Number of SandboxSnapshots in the namespace."""
    snapshot_storage: _Memory = None
    """Size of the files of all SandboxSnapshots in the namespace. One that does not fit is not taken."""


class SandboxBounds(PerSandbox):
    """Maxima of one sandbox, including its CPU weight and its priority."""

    cpu_shares: Annotated[Whole | None, Field(ge=2, le=262144)] = None
    """CPU weight against other sandboxes when all of the host's processors are busy."""
    priority: Annotated[Whole | None, Field(ge=-1_000_000, le=1_000_000)] = None
    """Priority in the queue for quota."""


class QuotaSpec(Model):
    """Maxima of the sandboxes of a namespace, together and each."""

    hard: HardQuota = HardQuota()
    """Maxima of all sandboxes of the namespace together."""
    per_sandbox: SandboxBounds = SandboxBounds()
    """Maxima of one sandbox."""


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of every resource that a quota bounds."""

    cpu_millicores: int = 0
    memory_bytes: int = 0
    pids: int = 0
    sandboxes: int = 0
    disk_bytes: int = 0
    gpus: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(*(getattr(self, resource.unit) + getattr(other, resource.unit) for resource in RESOURCES))

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(*(getattr(self, resource.unit) - getattr(other, resource.unit) for resource in RESOURCES))

    def within(self, other: "Amount") -> bool:
        """Return True if no resource exceeds the other amount."""
        return all(getattr(self, resource.unit) <= getattr(other, resource.unit) for resource in RESOURCES)


@dataclass(frozen=True, slots=True)
class Resource:
    """One bounded resource: its name in a spec, its field of an Amount, and its formatter."""

    name: str
    unit: str
    text: Callable[[int], str]


RESOURCES = (
    Resource("cpu", "cpu_millicores", format_cpu),
    Resource("memory", "memory_bytes", format_bytes),
    Resource("pids", "pids", str),
    Resource("sandboxes", "sandboxes", str),
    Resource("disk", "disk_bytes", format_bytes),
    Resource("gpus", "gpus", str),
)


REPLICAS = "replicas/"
OBJECTS = "objects"  # counted in the store, and held by no sandbox


def amount_of(limits: Limits, sandboxes: int = 0) -> Amount:
    """Return the amount of these limits."""
    return Amount(limits.cpu_millicores, limits.memory_bytes, limits.pids, sandboxes, limits.disk_bytes, limits.gpus)


@dataclass(frozen=True, slots=True)
class StoredQuota:
    """A stored Quota or HostQuota with its spec parsed; None if this version can't read it."""

    obj: StoredObject
    spec: QuotaSpec | None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Maximum of a scope's reservations after a commit: a namespace's, a host's (`host_scope`), or a pool's.

    Of `replicas_scope`, only the number of sandboxes.
    """

    namespace: str
    amount: Amount


def pool_scope(uid: str) -> str:
    """Return the key of a pool's ceiling, in the place of a namespace. No namespace can have this name."""
    return f"pool/{uid}"


def replicas_scope(uid: str) -> str:
    """Return the key of the number of a pool's warm and claimed members over all hosts. No namespace has this name."""
    return f"{REPLICAS}{uid}"


def host_scope(name: str) -> str:
    """Return the key of a host's ceiling, in the place of a namespace; "" for the default host.

    No namespace can have this name.
    """
    return "" if name == "host" else f"host/{name}"


def used_of_hard(name: str) -> Callable[[StoredObject, float], str]:
    """Return the cell of one resource: `used/hard`, `-` for unlimited or unknown."""

    def cell(obj: StoredObject, _now: float) -> str:
        usage: Mapping[str, Any] = obj.status.get("used", {})
        hard: Mapping[str, Any] = obj.status.get("hard", {})
        return f"{usage.get(name, '-')}/{hard.get(name, '-')}"

    return cell


COLUMNS = (
    *(
        Column(resource.name.upper(), used_of_hard(resource.name), wide=resource.name in ("disk", "gpus"))
        for resource in RESOURCES
    ),
    Column("AGE", lambda obj, now: age(now - obj.created_at)),
)
KIND = Kind(
    name="Quota",
    plural="quotas",
    short_names=("q",),
    spec=QuotaSpec,
    columns=(*COLUMNS[:-1], Column(OBJECTS.upper(), used_of_hard(OBJECTS)), COLUMNS[-1]),
)
