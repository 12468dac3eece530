"""Quota: how much the sandboxes of one namespace may hold together, and each by itself. HostQuota is the host's.

Limits are counted, not use: what a sandbox may take is promised to it from before its container exists until that is
seen stopped. A sandbox counts as one from its admission until it is gone, suspended or finished too.
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
    """What all sandboxes together may hold. What is left out is not bounded by this quota."""

    cpu: _Cpu = None
    """The sum of CPU limits of sandboxes that run or are about to."""
    memory: _Memory = None
    """The sum of memory limits of sandboxes that run or are about to."""
    pids: _Count = None
    """The sum of limits of processes and threads of sandboxes that run or are about to."""
    sandboxes: _Count = None
    """How many sandboxes there may be, suspended and finished ones included."""
    disk: _Memory = None
    """The sum of what sandboxes reserve of the disk, stopped ones too."""
    gpus: _Count = None
    """The sum of GPUs of sandboxes that run or are about to."""


class PerSandbox(Model):
    """What one sandbox may ask for. What is left out is not bounded by this quota."""

    cpu: _Cpu = None
    """Processor time."""
    memory: _Memory = None
    """Memory, with what is written to tmpfs."""
    pids: _Count = None
    """Processes and threads."""
    disk: _Memory = None
    """What it reserves of the disk."""
    gpus: _Count = None
    """GPUs."""


class PoolQuota(Model):
    """What the members of one pool and the sandboxes that came of it may hold together, and each by itself."""

    cpu: _Cpu = None
    """The sum of CPU limits."""
    memory: _Memory = None
    """The sum of memory limits."""
    pids: _Count = None
    """The sum of limits of processes and threads."""
    per_sandbox: PerSandbox = PerSandbox()
    """What one box of the pool may have at most."""

    @property
    def hard(self) -> HardLimits:
        """The limits for all together, as a Quota has them."""
        return HardLimits(cpu=self.cpu, memory=self.memory, pids=self.pids)


class HardQuota(HardLimits):
    """What a namespace may hold. `objects` are stored ones of any kind; left out, the daemon's own bound holds."""

    objects: _Count = None
    """How many objects of any kind the namespace may hold; left out: the daemon's own bound."""


class SandboxBounds(PerSandbox):
    """What one sandbox may ask for, its weight against others and its place among those that wait included."""

    cpu_shares: Annotated[Whole | None, Field(ge=2, le=262144)] = None
    """Weight against other sandboxes when the host's processors are all busy."""
    priority: Annotated[Whole | None, Field(ge=-1_000_000, le=1_000_000)] = None
    """Its place among those that wait for room."""


class QuotaSpec(Model):
    hard: HardQuota = HardQuota()
    """What all sandboxes of the namespace may hold together."""
    per_sandbox: SandboxBounds = SandboxBounds()
    """What one sandbox may ask for."""


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of everything that a quota bounds."""

    cpu_millicores: int = 0
    memory_bytes: int = 0
    pids: int = 0
    sandboxes: int = 0
    disk_bytes: int = 0
    gpus: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(*(getattr(self, each.unit) + getattr(other, each.unit) for each in RESOURCES))

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(*(getattr(self, each.unit) - getattr(other, each.unit) for each in RESOURCES))

    def within(self, other: "Amount") -> bool:
        """Whether nothing of this is more than there."""
        return all(getattr(self, each.unit) <= getattr(other, each.unit) for each in RESOURCES)


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that is bounded: its name in a spec, its field of an Amount, and how a number of it is written."""

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


def amount_of(limits: Limits, sandboxes: int = 0) -> Amount:
    """What these limits come to."""
    return Amount(limits.cpu_millicores, limits.memory_bytes, limits.pids, sandboxes, limits.disk_bytes, limits.gpus)


@dataclass(frozen=True, slots=True)
class StoredQuota:
    """A stored Quota or HostQuota with its spec parsed; None where this version can't read it."""

    obj: StoredObject
    spec: QuotaSpec | None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """After a commit no more than this may be held in the namespace ("": on the host; see `of_pool`: by a pool)."""

    namespace: str
    amount: Amount


def of_pool(uid: str) -> str:
    """What stands in the place of a namespace for the pool of that uid; no namespace can have this name."""
    return f"pool/{uid}"


def used_of_hard(name: str) -> Callable[[StoredObject, float], str]:
    """The cell of one resource: `used/hard`, `-` for what is not bounded or not known yet."""

    def cell(obj: StoredObject, _now: float) -> str:
        used: Mapping[str, Any] = obj.status.get("used", {})
        hard: Mapping[str, Any] = obj.status.get("hard", {})
        return f"{used.get(name, '-')}/{hard.get(name, '-')}"

    return cell


COLUMNS = (
    *(Column(each.name.upper(), used_of_hard(each.name), wide=each.name in ("disk", "gpus")) for each in RESOURCES),
    Column("AGE", lambda obj, now: age(now - obj.created_at)),
)
KIND = Kind(name="Quota", plural="quotas", short=("q",), spec=QuotaSpec, columns=COLUMNS)
