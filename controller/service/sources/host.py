"""The Host: what the engine said of itself and of the machine, and the conditions that can be checked at a reading."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from controller.kinds.host import NAME
from controller.kinds.meta import Condition, StoredObject
from controller.kinds.observed import HostFacts, Observation
from controller.kinds.quantity import format_bytes, format_cpu
from controller.ports import Store, StoreError
from controller.service.field_selector import FieldSelector
from controller.service.sources import derived_uid
from controller.version import VERSION


class HostSource:
    """`observe` gives the newest view of the engine; it must not block."""

    def __init__(self, store: Store, observe: Callable[[], Observation]) -> None:
        self._store, self._observe = store, observe

    def get(self, namespace: str, name: str) -> StoredObject | None:  # noqa: ARG002 - it belongs to no namespace
        return self._host() if name == NAME else None

    def list(self, namespace: str | None, asked: FieldSelector) -> Sequence[StoredObject]:  # noqa: ARG002 - there is one
        return [self._host()]

    def _host(self) -> StoredObject:
        observed = self._observe()
        status: dict[str, Any] = {}
        if observed.facts.engine_version:
            status |= {"capacity": _capacity(observed.facts), "engine": _engine(observed.facts)}
        status["paddock"] = {"version": VERSION, "instanceID": self._store.instance_id}
        with suppress(StoreError):  # a store that can't be read is told as a condition
            status["instances"] = len(self._store.instances())
        checked = (engine_reachable(observed), store_writable(self._store.ping()), network_guard(observed))
        status["conditions"] = [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in checked
        ]
        uid = derived_uid("Host", self._store.instance_id)
        return StoredObject(
            kind="Host",
            namespace="",
            name=NAME,
            uid=uid,
            spec={},
            generation=0,
            resource_version=observed.revision,
            status=status,
        )


def engine_reachable(observed: Observation) -> Condition:
    """Whether the last look at the engine succeeded; Unknown before the first one."""
    if not observed.blind:
        return Condition("EngineReachable", "True", "Answered")
    if observed.revision == 0 and not observed.facts.engine_version:
        return Condition("EngineReachable", "Unknown", "NotLookedYet", observed.blind)
    return Condition("EngineReachable", "False", "NoAnswer", observed.blind)


def store_writable(trouble: str) -> Condition:
    """Whether a write would work now; `trouble` is why not."""
    if trouble:
        return Condition("StoreWritable", "False", "NotWritable", trouble)
    return Condition("StoreWritable", "True", "Answered")


def network_guard(observed: Observation) -> Condition:
    """Whether the host's firewall guards the networks of sandboxes; without it none that has one is started."""
    if observed.revision == 0:
        return Condition("NetworkGuard", "Unknown", "NotLookedYet", observed.unguarded)
    if observed.unguarded:
        return Condition("NetworkGuard", "False", "NotInForce", observed.unguarded)
    return Condition("NetworkGuard", "True", "InForce")


def _capacity(facts: HostFacts) -> dict[str, Any]:
    return {"cpu": format_cpu(facts.cpus * 1000), "memory": format_bytes(facts.memory_bytes)}


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
