"""Made-up snapshots and usage: as many sandboxes as a test wants, without an engine."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, HostFacts, Observation, State
from controller.kinds.observed.usage import LayerUsage, NetworkUsage, Usage
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import InstanceState, Termination
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.metrics.catalogue.objects import CONDITIONS
from tests.instance_states import instance_state
from tests.snapshots import snapshot_with

NOW = 1_700_000_000.0
MIB = 1 << 20
LIMITS = Limits(cpu_millicores=500, memory_bytes=256 * MIB, pids=128)
FACTS = HostFacts(
    engine_version="26.1.5",
    api_version="1.45",
    cpus=8,
    memory_bytes=16 << 30,
    cgroup_version="2",
    cgroup_driver="systemd",
    storage_driver="overlay2",
    default_runtime="runc",
    root_dir="/",
)
SPEC = {
    "template": {"image": "paddock/python:1"},
    "resources": {"limits": {"cpu": "500m", "memory": "256Mi", "pids": 128}},
}
USAGE = Usage(
    source="cgroup2",
    cpu_usage_seconds=12.5,
    cpu_user_seconds=10.25,
    cpu_system_seconds=2.25,
    memory_usage_bytes=100 * MIB,
    memory_working_set_bytes=80 * MIB,
    memory_rss_bytes=60 * MIB,
    memory_cache_bytes=30 * MIB,
    pids=7,
    cpu_periods=1000,
    cpu_throttled_periods=10,
    cpu_throttled_seconds=0.5,
    memory_kernel_bytes=3 * MIB,
    memory_swap_bytes=0,
    memory_peak_bytes=120 * MIB,
    memory_major_faults=4,
    memory_limit_hits=2,
    oom_kills=1,
    pids_peak=11,
    pids_limit=128,
    pids_limit_hits=0,
    memory_limit_bytes=256 * MIB,
    memory_swap_limit_bytes=0,
    cpu_limit_cores=0.5,
    fs_read_bytes=4096,
    fs_write_bytes=8192,
    fs_reads=1,
    fs_writes=2,
    log_bytes=300,
    network=NetworkUsage(1, 2, 3, 4, 5, 6, 7, 8),
    cpu_waiting_seconds=1.5,
    cpu_stalled_seconds=0.0,
    memory_waiting_seconds=2.5,
    memory_stalled_seconds=2.0,
    io_waiting_seconds=3.5,
    io_stalled_seconds=3.0,
)


def conditions(**statuses: str) -> list[dict[str, str]]:
    """Conditions by type: "True", or "False/Reason"."""
    parts = {type_: text.partition("/") for type_, text in statuses.items()}
    return [
        {"type": type_, "status": status, "reason": reason or type_} for type_, (status, _, reason) in parts.items()
    ]


def sandbox(name: str, spec: Mapping[str, Any] = SPEC, **changes: Any) -> Sandbox:
    """A stored sandbox that is Ready, with every condition known."""
    texts = {type_: "True" if type_ in ("Ready", "Accepted") else "False" for type_ in CONDITIONS}
    obj = StoredObject(
        kind="Sandbox",
        namespace="default",
        name=name,
        uid=f"{crc32(name.encode()):08x}-{name}",
        spec=spec,
        generation=3,
        created_at=NOW - 100,
        status={"observedGeneration": 3, "conditions": conditions(**texts)},
    )
    read = SandboxSpec.model_validate(spec)
    return Sandbox(replace(obj, **changes), read, read.template)


def container(obj: StoredObject, **changes: Any) -> Container:
    created = Container(
        id=f"id-of-{obj.name}",
        name=container_name(obj.name, obj.uid),
        uid=obj.uid,
        state=State.RUNNING,
        image="paddock/python:1",
        image_id="sha256:abc",
        limits=LIMITS,
        pid=1234,
        created_at=NOW - 60,
        started_at=NOW - 50,
        networks=("bridge",),
    )
    return replace(created, **changes)


def instance(obj: StoredObject, memory: InstanceState | None = None) -> Instance:
    end = Termination("id-before", 137, "OOMKilled", NOW - 90, NOW - 70)
    return Instance(
        name=container_name(obj.name, obj.uid),
        parent_uid=obj.uid,
        parent_kind="Sandbox",
        namespace=obj.namespace,
        parent_name=obj.name,
        role="sandbox",
        reserves=LIMITS,
        created_at=NOW - 100,
        state=memory or instance_state(restarts=2, last_end=end),
    )


def snapshot(*sandboxes: Sandbox, containers: Iterable[Container] | None = None, blind: str = "") -> Snapshot:
    """A snapshot of those sandboxes, each with an instance and (unless told otherwise) a running container."""
    document: dict[str, tuple[Container, ...]] = {}
    for entry in [container(first.obj) for first in sandboxes] if containers is None else containers:
        document[entry.uid] = (*document.get(entry.uid, ()), entry)
    return snapshot_with(
        now=NOW,
        instance_id="made-up",
        sandboxes={one_sandbox.obj.uid: one_sandbox for one_sandbox in sandboxes},
        observed=Observation(revision=1, blind=blind, at=NOW, containers=document, facts=FACTS),
        instances={one_sandbox.obj.uid: instance(one_sandbox.obj) for one_sandbox in sandboxes},
    )


def many(count: int) -> Snapshot:
    return snapshot(*(sandbox(f"box-{number:04d}") for number in range(count)))


def layers(seen: Snapshot) -> Mapping[str, LayerUsage]:
    """Return the bytes written by each running container, as if measured ten seconds ago."""
    return {entry.id: LayerUsage(5 * MIB, NOW - 10) for entry in seen.alive()}


class MadeUpUsage:
    """A UsageReader that knows the same figures for every container, or others by container id."""

    def __init__(self, usage: Usage | None = USAGE, **by_id: Usage | None) -> None:
        self._usage = usage
        self._by_id = by_id

    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        by_ids = {entry.id: self._by_id.get(entry.id, self._usage) for entry in containers}
        return {id_: usage for id_, usage in by_ids.items() if usage is not None}


class Scraped:
    """Samples of one scrape, by name and labels."""

    def __init__(self, families: Iterable[Any]) -> None:
        self.samples = [sample for family in families for sample in family.samples]

    def value(self, name: str, /, **labels: str) -> float | None:
        """The one sample of that name that bears these labels; None when there is none."""
        observed = [
            sample for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(observed) <= 1, f"{name} {labels} names {len(observed)} samples"
        return observed[0].value if observed else None

    def names(self, **labels: str) -> list[str]:
        return [sample.name for sample in self.samples if labels.items() <= sample.labels.items()]


def scrape(collect: Callable[[], Iterable[Any]]) -> Scraped:
    return Scraped(collect())
