"""Current resource usage of one sandbox or of all running ones, from the latest samples."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import NOT_MEASURED, FolderUse, LayerUsage, UsageSample
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.listing import serialize
from controller.service.objects.objects import Objects
from controller.version import API_VERSION

# Latest usage of each running container by its object's uid; at most a second old.
LastSamples = Callable[[], Mapping[str, UsageSample]]
Layers = Callable[[], Mapping[str, LayerUsage]]  # sizes of writable layers, by container id
Folders = Callable[[Container], Sequence[FolderUse]]  # use of its in-memory folders now
OLDEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """A sandbox and its usage. `host` runs it; empty: the only one there is."""

    obj: StoredObject
    sample: UsageSample
    host: str = ""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes of a sandbox's files, and how many there may be; 0: unknown."""

    used_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class UsageList:
    """Usage of the running sandboxes, in order of namespace and name, taken at `at` (Unix seconds)."""

    at: float
    usages: Sequence[SandboxUsage]

    @cached_property
    def items(self) -> Sequence[serialize.Json]:
        """The items as the API shows them, made once for all who share the list."""
        return [as_json(usage) for usage in self.usages]

    @cached_property
    def json(self) -> bytes:
        """The list as the API shows it, serialized once for all who share it."""
        return list_json(self.items)


class Usages:
    """The use-case. It never waits for the engine. Thread-safe."""

    def __init__(
        self,
        objects: Objects,
        samples: LastSamples,
        host: str = "",
        *,
        folders: Folders = lambda _: (),
        layers: Layers = dict,
    ) -> None:
        """`host` is this host's name among others; empty: there are none."""
        self._objects, self._samples, self._host = objects, samples, host
        self._folders, self._layers = folders, layers
        self._lock = threading.Lock()
        self._lists: dict[tuple[str, str | None], UsageList] = {}

    def of_sandbox(self, kind: Kind, namespace: str, name: str) -> SandboxUsage:
        """Return one sandbox's usage. Raises NotFound; Conflict while it does not run, or its cgroup is unreadable."""
        obj = self._objects.get(kind, namespace, name)
        sample = self._samples().get(obj.uid)
        if sample is None:
            raise errors.Conflict(
                f"{kind.name.lower()} `{name}` has no figures: it does not run, or its cgroup can't be read;"
                f" `paddock why {name}` says more"
            )
        return SandboxUsage(obj, sample, self._host)

    def disk(self, container: Container) -> DiskUse:
        """Return what its files take, as far as that is known: its writable layer and its in-memory folders."""
        folders = self._folders(container)
        layer = self._layers().get(container.id, NOT_MEASURED).used_bytes or 0
        return DiskUse(
            layer + sum(folder.used_bytes for folder in folders),
            container.storage_bytes + sum(folder.size_bytes for folder in folders),
        )

    def of_all(self, kind: Kind, namespace: str | None, *, max_age_seconds: float = 0.0) -> UsageList:
        """Return the usage of all running ones. `namespace` None: all namespaces.

        A list of at most `max_age_seconds` is given again: many who ask cost one reading of the host.
        """
        with self._lock:  # who asks meanwhile gets what is being read
            now = self._objects.now()
            self._lists = {
                key: usage_list for key, usage_list in self._lists.items() if 0 <= now - usage_list.at < OLDEST_SECONDS
            }
            cached = self._lists.get((kind.name, namespace))
            if cached is None or now - cached.at >= max_age_seconds:
                cached = self._lists[kind.name, namespace] = self._read(kind, namespace, now)
            return cached

    def _read(self, kind: Kind, namespace: str | None, now: float) -> UsageList:
        sandboxes = self._objects.list(kind, namespace).objects
        samples = self._samples()
        usages = [SandboxUsage(obj, samples[obj.uid], self._host) for obj in sandboxes if obj.uid in samples]
        return UsageList(now, usages)


def list_json(items: Sequence[serialize.Json], **fields: object) -> bytes:
    """Return a list of usages as the API shows it, with more fields of the list."""
    document = {"apiVersion": API_VERSION, "kind": "SandboxMetricsList", "items": items, **fields}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def as_json(sandbox_usage: SandboxUsage) -> serialize.Json:
    """Return the usage as the API shows it."""
    sample, usage = sandbox_usage.sample, sandbox_usage.sample.usage
    network = usage.network
    started = sample.container.started_at
    return {
        "apiVersion": API_VERSION,
        "kind": "SandboxMetrics",
        "metadata": serialize.metadata(sandbox_usage.obj),
        **({"host": sandbox_usage.host} if sandbox_usage.host else {}),
        "timestamp": serialize.timestamp(sample.at),
        "windowSeconds": round(sample.window_seconds, 3),
        "usage": {
            "cpuPercent": round(sample.cpu_cores * 100, 2),
            "cpuLimitPercent": round(usage.cpu_limit_cores * 100, 2) if usage.cpu_limit_cores else None,
            "memoryUsageBytes": usage.memory_working_set_bytes,
            "memoryLimitBytes": usage.memory_limit_bytes,
            "networkReceiveBytes": network.receive_bytes if network else None,
            "networkTransmitBytes": network.transmit_bytes if network else None,
            "diskReadBytes": usage.fs_read_bytes,
            "diskWriteBytes": usage.fs_write_bytes,
            "processes": usage.pids,
            "processesLimit": usage.pids_limit,
            "uptimeSeconds": round(max(0.0, sample.at - started), 3) if started else 0.0,
        },
    }
