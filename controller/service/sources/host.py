"""The Hosts: their stored spec and labels, the engine's facts about itself and the machine, and conditions.

Facts and conditions of this host are read at each request. Those of the others are as their daemons stored them, and
Unknown once a daemon's lease is over.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from controller.build import build_hash
from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.host import NAME, REACHABLE, STOPPED, lease_of
from controller.kinds.meta import Condition, ObjectRef, StoredObject
from controller.kinds.observed.canary import UNWATCHED, CanaryResult
from controller.kinds.observed.observed import HostFacts, Observation
from controller.kinds.observed.pressure import NONE, Pressure
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.kinds.planning.binding import BOUND_KINDS
from controller.kinds.planning.plan import Writes
from controller.kinds.quota import Amount, host_scope
from controller.kinds.runtime.engine_api import untried
from controller.kinds.sandbox import FINALIZER
from controller.ports import LeaseState, Store, StoreError
from controller.ports.fleet import NOT_REACHED, SINGLE, Fleet, Reached
from controller.service import errors
from controller.service.listing import serialize
from controller.service.listing.field_selector import FieldSelector
from controller.service.sources import derived_uid
from controller.version import VERSION

_PRESSURES = {"MemoryPressure": ("memory",), "DiskPressure": ("disk", "inodes"), "PIDPressure": ("pids",)}
_YEAR = 365 * 86400.0
_SHOWN = 5


class HostSource:
    """`observe` gives the latest observation of the engine; it must not block. `pressure` is that of the machine.

    `place` is this host among those of the store; `reached` tells where others reach its daemon. `now` gives Unix
    seconds. `images` are the names of those on the engine, as last listed. `hibernation` is the machine's ability.
    """

    def __init__(
        self,
        store: Store,
        observe: Callable[[], Observation],
        pressure: Callable[[], Pressure] = lambda: NONE,
        canary: Callable[[], CanaryResult] = lambda: UNWATCHED,
        *,
        place: Fleet = SINGLE,
        reached: Reached = NOT_REACHED,
        now: Callable[[], float] = lambda: 0.0,
        images: Callable[[], Sequence[str] | None] = lambda: None,
        hibernation: Callable[[], HibernationAbility] = lambda: UNKNOWN_ABILITY,
    ) -> None:
        self._store, self._observe, self._pressure, self._canary = store, observe, pressure, canary
        self._place, self._reached, self._now, self._images = place, reached, now, images
        self._hibernation = hibernation

    def get(self, namespace: str, name: str) -> StoredObject | None:  # noqa: ARG002 - it belongs to no namespace
        if name == self._place.host and self._place.keeps_sandboxes:
            return self._own_host()
        stored = self._store.get("Host", "", name) if self._place.needs_lookup(name) else None
        return None if stored is None else self._other_host(stored, self._leases())

    def list(self, namespace: str | None, by_fields: FieldSelector, limit: int) -> Sequence[StoredObject]:  # noqa: ARG002 - few enough
        if not self._place.shares_store:
            return [self._own_host()]
        leases, stored = self._leases(), self._store.list("Host")[0]
        other_hosts = [self._other_host(host, leases) for host in stored if host.name != self._place.host]
        own_hosts = [self._own_host()] if self._place.keeps_sandboxes else []
        return sorted([*own_hosts, *other_hosts], key=lambda host: host.name)

    def unpatched(self, name: str) -> StoredObject | None:
        """Return this host's stored part before its first patch."""
        if name != self._place.host:
            return None
        ref = host_ref(self._store.instance_id, name)
        return StoredObject(ref.kind, ref.namespace, ref.name, ref.uid, spec={}, generation=0)

    def reported(self) -> StoredObject:
        """Return this host as its daemon stores it for the others: with what only it can know. No I/O."""
        plain = self.unpatched(self._place.host)
        assert plain is not None
        images = {"images": list(listed)} if (listed := self._images()) is not None else {}
        return replace(plain, status={**self._status(self._observe(), ""), **images})

    def delete(self, namespace: str, name: str) -> StoredObject | None:  # noqa: ARG002 - it belongs to no namespace
        """Delete a host that is gone for good; return it as it was, or None.

        Sandboxes and pools of it that are being deleted are, too: nobody else could release them. Raises Conflict.
        """
        host = self.get("", name)
        if host is None:
            return None
        if name == self._place.host:
            raise _undeletable(name, "it is the host of the daemon that you ask; only one that is gone can be removed")
        lease = self._leases().get(lease_of(name))
        if lease is not None and lease.seconds_left > 0:
            message = f"its daemon is running ({lease.holder}); stop it first: `systemctl stop paddock` on that host"
            raise _undeletable(name, message)
        bound = [obj for kind in BOUND_KINDS for obj in self._bound(kind, name)]
        if staying := [str(obj.ref) for obj in bound if obj.deleted_at is None]:
            more_text = f" and {len(staying) - _SHOWN} more" if len(staying) > _SHOWN else ""
            verb, them = ("is", "it") if len(staying) == 1 else ("are", "them")
            subject = f"{', '.join(staying[:_SHOWN])}{more_text} {verb} bound to it"
            message = f"{subject}; start its daemon again, or delete {them} first"
            raise _undeletable(name, f"{message} (`paddock delete --no-wait`), and then this host: that releases them")
        self._store.record(Writes(finalized=tuple((obj.ref, FINALIZER) for obj in bound)))
        with self._store.transaction() as transaction:
            stored = transaction.get("Host", "", name)
            if stored is not None:
                transaction.remove(stored)
        return host

    def _bound(self, kind: str, name: str) -> Iterator[StoredObject]:
        objects = self._store.list(kind, lean=kind == "Sandbox")[0]
        return (obj for obj in objects if self._place.host_of(obj) == name)

    def _own_host(self) -> StoredObject:
        status, stored = self._status(self._observe(), self._store.ping()), self._stored()
        with suppress(StoreError):  # an unreadable store is reported as a condition
            status |= self._counts(self._place.host)
        if self._place.shares_store:
            status["lastSeen"] = serialize.timestamp(self._now())
            if (listed := stored.status.get("images")) is not None:
                status["images"] = listed
            status["conditions"] = [
                *_conditions_json([Condition(REACHABLE, "True", "LeaseHeld")]),
                *status["conditions"],
            ]
        return replace(stored, status=status)

    def _status(self, observed: Observation, trouble: str) -> dict[str, Any]:
        """Return the status without the lease and the numbers, which any daemon can tell."""
        status: dict[str, Any] = {}
        if observed.facts.engine_version:
            status |= {"capacity": _capacity(observed.facts), "engine": _engine(observed.facts)}
        build = {"build": code} if (code := build_hash()) else {}
        status["paddock"] = {"version": VERSION, **build, "instanceID": self._store.instance_id}
        status |= {"address": self._reached.address} if self._reached.address else {}
        status |= {"metricsURL": self._reached.metrics_url} if self._reached.metrics_url else {}
        checked = [engine_reachable(observed), store_writable(trouble)]
        checked.append(network_guard(observed, self._canary()))
        checked += [disk_quota_enforceable(observed), default_runtime(observed)]
        checked.append(hibernation_available(self._hibernation()))
        checked += pressures(self._pressure())
        return {**status, "conditions": _conditions_json(checked)}

    def _counts(self, name: str) -> dict[str, Any]:
        scope = host_scope(name)
        instances = self._store.count_instances(self._place.within(name))
        reserved = self._store.reservations(scope)[scope]
        return {"instances": instances, "sandboxes": reserved.sandboxes, "reserved": _reserved(reserved)}

    def _other_host(self, stored: StoredObject, leases: Mapping[str, LeaseState]) -> StoredObject:
        """Return another host: as it was stored, and Unknown if its daemon does not hold its lease."""
        now, lease = self._now(), leases.get(lease_of(stored.name))
        status = {**stored.status, **self._counts(stored.name)}
        reported = [dict(condition) for condition in stored.status.get("conditions", ())]
        reachable = daemon_reachable(lease)
        if reachable.status == "True":
            status["lastSeen"] = serialize.timestamp(now)
        else:
            reported = [_outdated(condition) for condition in reported]
            if lease is not None and reachable.reason != STOPPED:
                status["lastSeen"] = serialize.timestamp(now + lease.seconds_left)
        return replace(stored, status={**status, "conditions": [*_conditions_json([reachable]), *reported]})

    def _leases(self) -> Mapping[str, LeaseState]:
        """Return the leases by their names."""
        return {lease.name: lease for lease in self._store.leases()}

    def _stored(self) -> StoredObject:
        """Return the stored spec and labels; those of a host that nobody changed, also if the store can't be read."""
        plain = self.unpatched(self._place.host)
        assert plain is not None
        with suppress(StoreError):
            return self._store.get(plain.kind, plain.namespace, plain.name) or plain
        return plain


def host_ref(instance_id: str, name: str = NAME) -> ObjectRef:
    """Return the reference to a host of this store, for events about it."""
    own_name = () if name == NAME else (name,)
    return ObjectRef("Host", "", name, derived_uid("Host", instance_id, *own_name))


def daemon_reachable(lease: LeaseState | None) -> Condition:
    """Return the condition of another host's daemon, by its lease (None: nobody ever held it)."""
    if lease is not None and lease.seconds_left > 0:
        return Condition(REACHABLE, "True", "LeaseHeld")
    if lease is not None and lease.seconds_left < -_YEAR:
        return Condition(
            REACHABLE, "Unknown", STOPPED, "its daemon was stopped, and its sandboxes run on; start it again"
        )
    message = "its daemon, the host or its network is away, and nothing is moved; look at that host"
    return Condition(REACHABLE, "Unknown", "LeaseExpired", message)


def _outdated(condition: dict[str, Any]) -> dict[str, Any]:
    """Return a condition of a host whose daemon is away: nobody knows if it still holds."""
    message = f"its daemon is away; it last reported {condition['status']} {condition['reason']}"
    return {**condition, "status": "Unknown", "reason": "DaemonAway", "message": message}


def _conditions_json(conditions: Sequence[Condition]) -> Sequence[dict[str, Any]]:
    return [
        {"type": condition.type, "status": condition.status, "reason": condition.reason, "message": condition.message}
        for condition in conditions
    ]


def _undeletable(name: str, message: str) -> errors.Conflict:
    return errors.Conflict(f"host `{name}`: {message}", kind="hosts", name=name)


def engine_reachable(observed: Observation) -> Condition:
    """Return the condition of the last observation of the engine; Unknown before the first."""
    if not observed.blind:
        return Condition("EngineReachable", "True", "Answered", untried(observed.facts.api_version))
    if observed.revision == 0 and not observed.facts.engine_version:
        return Condition("EngineReachable", "Unknown", "NotLookedYet", observed.blind)
    return Condition("EngineReachable", "False", "NoAnswer", observed.blind)


def store_writable(trouble: str) -> Condition:
    """Return the condition of store writes; `trouble` is the reason of a failure."""
    if trouble:
        return Condition("StoreWritable", "False", "NotWritable", trouble)
    return Condition("StoreWritable", "True", "Answered")


def network_guard(observed: Observation, canary: CanaryResult = UNWATCHED) -> Condition:
    """Return the condition of the host's firewall rules; without them no sandbox with a network starts."""
    if observed.revision == 0:
        return Condition("NetworkGuard", "Unknown", "NotLookedYet", observed.unguarded)
    if observed.unguarded:
        return Condition("NetworkGuard", "False", "NotInForce", observed.unguarded)
    if canary.broken:
        return Condition("NetworkGuard", "False", "Broken", canary.broken)
    if canary.state == "Untried":
        return Condition("NetworkGuard", "Unknown", "Untried", canary.message)
    tried = "; probed from inside a network: no local address answers" if canary.state == "Holds" else ""
    return Condition("NetworkGuard", "True", "InForce", f"the table is loaded{tried}" if tried else "")


def disk_quota_enforceable(observed: Observation) -> Condition:
    """Return the condition of the engine's enforcement of limits.disk, as probed."""
    disk = observed.facts.disk
    if disk is None:
        return Condition("DiskQuotaEnforceable", "Unknown", "NotTriedYet")
    status, reason = ("True", "Tried") if disk.enforced else ("False", "Soft")
    return Condition("DiskQuotaEnforceable", status, reason, disk.message)  # type: ignore[arg-type]


def default_runtime(observed: Observation) -> Condition:
    """Return the condition of the runtime of new sandboxes: False if it is not the one that the operator set."""
    choice = observed.facts.runtime_choice
    if choice is None:
        return Condition("DefaultRuntime", "Unknown", "NotLookedYet")
    return Condition("DefaultRuntime", "False" if choice.fell_back else "True", choice.reason, choice.message)


def hibernation_available(ability: HibernationAbility) -> Condition:
    """Return the condition of hibernation: without it idle sandboxes are suspended."""
    if ability == UNKNOWN_ABILITY:
        return Condition("HibernationAvailable", "Unknown", ability.reason, ability.message)
    return Condition("HibernationAvailable", "True" if ability.available else "False", ability.reason, ability.message)


def pressures(pressure: Pressure) -> Iterator[Condition]:
    """Yield the pressure conditions: under pressure nothing new starts, and unused sandboxes are suspended first."""
    for type_, names in _PRESSURES.items():
        low = [name for name in names if name in pressure.low]
        if low:
            worse = "" if not set(low) & set(pressure.critical) else "; unused sandboxes are suspended"
            message = f"low on {' and '.join(low)}: nothing new is started{worse}; free some, or move sandboxes away"
            yield Condition(type_, "True", f"Insufficient{type_.removesuffix('Pressure')}", message)
        elif set(names) & set(pressure.measured):
            yield Condition(type_, "False", f"Sufficient{type_.removesuffix('Pressure')}")
        else:
            yield Condition(type_, "Unknown", "NotRead", "the figures could not be read, or pressure_scale is 0")


def _capacity(facts: HostFacts) -> dict[str, Any]:
    gpus = {"gpus": len(facts.gpus)} if facts.gpus else {}
    return {"cpu": format_cpu(facts.cpus * 1000), "memory": format_bytes(facts.memory_bytes), **gpus}


def _reserved(amount: Amount) -> dict[str, Any]:
    as_json: dict[str, Any] = {"cpu": format_cpu(amount.cpu_millicores), "memory": format_bytes(amount.memory_bytes)}
    as_json |= {"disk": format_bytes(amount.disk_bytes)} if amount.disk_bytes else {}
    return as_json | ({"gpus": amount.gpus} if amount.gpus else {})


def _engine(facts: HostFacts) -> dict[str, Any]:
    identity = {"id": facts.engine_id} if facts.engine_id else {}
    return {
        **identity,
        "version": facts.engine_version,
        "apiVersion": facts.api_version,
        "storageDriver": facts.storage_driver,
        "rootDir": facts.root_dir,
        "cgroupVersion": facts.cgroup_version,
        "cgroupDriver": facts.cgroup_driver,
        "defaultRuntime": facts.default_runtime,
        **({"sandboxRuntime": choice.runtime or facts.default_runtime} if (choice := facts.runtime_choice) else {}),
        "runtimes": sorted(facts.runtimes),
        "securityOptions": list(facts.security_options),
    }
