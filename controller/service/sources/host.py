"""The Host: its stored spec and labels, the engine's facts about itself and the machine, and conditions.

Facts and conditions are read at each request.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.host import NAME
from controller.kinds.meta import Condition, ObjectRef, StoredObject
from controller.kinds.observed.canary import UNWATCHED, CanaryResult
from controller.kinds.observed.observed import HostFacts, Observation
from controller.kinds.observed.pressure import NONE, Pressure
from controller.ports import Store, StoreError
from controller.service.objects.field_selector import FieldSelector
from controller.service.sources import derived_uid
from controller.version import VERSION

_PRESSURES = {"MemoryPressure": ("memory",), "DiskPressure": ("disk", "inodes"), "PIDPressure": ("pids",)}


class HostSource:
    """`observe` gives the latest observation of the engine; it must not block. `pressure` is that of the machine."""

    def __init__(
        self,
        store: Store,
        observe: Callable[[], Observation],
        pressure: Callable[[], Pressure] = lambda: NONE,
        guarded: Callable[[], CanaryResult] = lambda: UNWATCHED,
    ) -> None:
        self._store, self._observe, self._pressure, self._guarded = store, observe, pressure, guarded

    def get(self, namespace: str, name: str) -> StoredObject | None:  # noqa: ARG002 - it belongs to no namespace
        return self._host() if name == NAME else None

    def list(self, namespace: str | None, asked: FieldSelector, limit: int) -> Sequence[StoredObject]:  # noqa: ARG002 - there is one
        return [self._host()]

    def unpatched(self, name: str) -> StoredObject | None:
        """Return the host's stored part before its first patch."""
        if name != NAME:
            return None
        ref = host_ref(self._store.instance_id)
        return StoredObject(ref.kind, ref.namespace, ref.name, ref.uid, spec={}, generation=0)

    def _host(self) -> StoredObject:
        observed = self._observe()
        status: dict[str, Any] = {}
        if observed.facts.engine_version:
            status |= {"capacity": _capacity(observed.facts), "engine": _engine(observed.facts)}
        status["paddock"] = {"version": VERSION, "instanceID": self._store.instance_id}
        with suppress(StoreError):  # an unreadable store is reported as a condition
            status["instances"] = self._store.count_instances()
        checked = [engine_reachable(observed), store_writable(self._store.ping())]
        checked.append(network_guard(observed, self._guarded()))
        checked += [disk_quota_enforceable(observed), *pressures(self._pressure())]
        status["conditions"] = [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in checked
        ]
        return replace(self._stored(), status=status)

    def _stored(self) -> StoredObject:
        """Return the stored spec and labels; those of a host that nobody changed, also if the store can't be read."""
        plain = self.unpatched(NAME)
        assert plain is not None
        with suppress(StoreError):
            return self._store.get(plain.kind, plain.namespace, plain.name) or plain
        return plain


def host_ref(instance_id: str) -> ObjectRef:
    """Return the reference for events about this host."""
    return ObjectRef("Host", "", NAME, derived_uid("Host", instance_id))


def engine_reachable(observed: Observation) -> Condition:
    """Return the condition of the last observation of the engine; Unknown before the first."""
    if not observed.blind:
        return Condition("EngineReachable", "True", "Answered")
    if observed.revision == 0 and not observed.facts.engine_version:
        return Condition("EngineReachable", "Unknown", "NotLookedYet", observed.blind)
    return Condition("EngineReachable", "False", "NoAnswer", observed.blind)


def store_writable(trouble: str) -> Condition:
    """Return the condition of store writes; `trouble` is the reason of a failure."""
    if trouble:
        return Condition("StoreWritable", "False", "NotWritable", trouble)
    return Condition("StoreWritable", "True", "Answered")


def network_guard(observed: Observation, guarded: CanaryResult = UNWATCHED) -> Condition:
    """Return the condition of the host's firewall rules; without them no sandbox with a network starts."""
    if observed.revision == 0:
        return Condition("NetworkGuard", "Unknown", "NotLookedYet", observed.unguarded)
    if observed.unguarded:
        return Condition("NetworkGuard", "False", "NotInForce", observed.unguarded)
    if guarded.broken:
        return Condition("NetworkGuard", "False", "Broken", guarded.broken)
    if guarded.state == "Untried":
        return Condition("NetworkGuard", "Unknown", "Untried", guarded.words)
    tried = "; probed from inside a network: no local address answers" if guarded.state == "Holds" else ""
    return Condition("NetworkGuard", "True", "InForce", f"the table is loaded{tried}" if tried else "")


def disk_quota_enforceable(observed: Observation) -> Condition:
    """Return the condition of the engine's enforcement of limits.disk, as probed."""
    found = observed.facts.disk
    if found is None:
        return Condition("DiskQuotaEnforceable", "Unknown", "NotTriedYet")
    status, reason = ("True", "Tried") if found.enforced else ("False", "Soft")
    return Condition("DiskQuotaEnforceable", status, reason, found.words)  # type: ignore[arg-type]


def pressures(found: Pressure) -> Iterator[Condition]:
    """Yield the pressure conditions: under pressure nothing new starts, and unused sandboxes are suspended first."""
    for type_, names in _PRESSURES.items():
        low = [each for each in names if each in found.low]
        if low:
            worse = "" if not set(low) & set(found.critical) else "; unused sandboxes are suspended"
            words = f"low on {' and '.join(low)}: nothing new is started{worse}; free some, or move sandboxes away"
            yield Condition(type_, "True", f"Insufficient{type_.removesuffix('Pressure')}", words)
        elif set(names) & set(found.known):
            yield Condition(type_, "False", f"Sufficient{type_.removesuffix('Pressure')}")
        else:
            yield Condition(type_, "Unknown", "NotRead", "the figures could not be read, or pressure_scale is 0")


def _capacity(facts: HostFacts) -> dict[str, Any]:
    gpus = {"gpus": len(facts.gpus)} if facts.gpus else {}
    return {"cpu": format_cpu(facts.cpus * 1000), "memory": format_bytes(facts.memory_bytes), **gpus}


def _engine(facts: HostFacts) -> dict[str, Any]:
    return {
        "version": facts.engine_version,
        "apiVersion": facts.api_version,
        "storageDriver": facts.storage_driver,
        "rootDir": facts.root_dir,
        "cgroupVersion": facts.cgroup_version,
        "cgroupDriver": facts.cgroup_driver,
        "defaultRuntime": facts.default_runtime,
        "securityOptions": list(facts.security_options),
    }
