"""Fake scheduler: hosts with memory and processors, and a choice by fewest placements, as Docker Swarm chooses."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.ports.common import Wake
from controller.ports.scheduler import (
    Availability,
    Liveness,
    Lost,
    Pending,
    Placed,
    PlacedRecord,
    Placement,
    PlacementState,
    SchedulerError,
    SchedulerHost,
    SchedulerProblem,
    StaleBinding,
    Suspended,
)

_NOWHERE = "no suitable node (insufficient resources)"


@dataclass
class _Entry:
    placement: Placement
    pinned: str = ""  # the host's id: one that joins anew under its name is another
    on: str = ""


@dataclass
class FakeScheduler:
    """Thread-safe. `failure` is raised by every call while it is set."""

    failure: SchedulerError | None = None
    _hosts: dict[str, SchedulerHost] = field(default_factory=dict)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _wakes: list[Wake] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # What happens to its hosts.

    def join(self, name: str, *, memory_bytes: int = 16 << 30, cpu_millicores: int = 4000) -> None:
        """A host becomes a member; nothing is placed on it before `set_host`."""
        with self._lock:
            self._hosts[f"id-of-{name}"] = SchedulerHost(
                *(f"id-of-{name}", name, "192.0.2.1", Liveness.UP, Availability.ACTIVE, False, {}),
                *(cpu_millicores, memory_bytes),
            )
            self._settle()

    def set_liveness(self, name: str, liveness: Liveness) -> None:
        with self._lock:
            self._replace(name, liveness=liveness)
            self._settle()

    def remove_out_of_band(self, uid: str) -> None:
        with self._lock:
            del self._entries[uid]
            self._settle()

    # The port.

    def ping(self) -> str:
        self._try()
        return next(iter(self._hosts), "")

    def prepare(self) -> None:
        self._try()

    def hosts(self) -> Sequence[SchedulerHost]:
        self._try()
        with self._lock:
            return sorted(self._hosts.values(), key=lambda host: (host.name, host.id))

    def set_host(
        self, name: str, *, fit: bool, labels: Mapping[str, str], availability: Availability | None = None
    ) -> None:
        self._try()
        with self._lock:
            if not self._id(name):
                raise SchedulerError(SchedulerProblem.REFUSED, f"host {name}: no node has this name; let it join")
            self._replace(name, fit=fit, labels=dict(labels))
            if availability is not None:
                self._replace(name, availability=availability)
            self._settle()

    def place(self, placement: Placement) -> PlacementState:
        self._try()
        with self._lock:
            had = self._entries.get(placement.uid)
            if placement.host and not self._id(placement.host):
                return Lost(placement.host, "no node has this name")
            if had is None:
                had = self._entries[placement.uid] = _Entry(placement)
                return self._change(had, placement) and self._state_of_new(had)
            if had.placement.binding > placement.binding:
                raise StaleBinding(placement.uid)
            if had.placement.binding == placement.binding and not placement.host:
                placement = replace(placement, host=had.placement.host)
            return self._change(had, placement)

    def pin(self, uid: str, binding: int, host: str) -> PlacementState:
        self._try()
        with self._lock:
            entry = self._entries.get(uid)
            if entry is None or entry.placement.binding != binding:
                raise StaleBinding(uid)
            return self._change(entry, replace(entry.placement, host=host))

    def release(self, uid: str, binding: int | None = None) -> None:
        self._try()
        with self._lock:
            entry = self._entries.get(uid)
            if entry is not None and (binding is None or entry.placement.binding <= binding):
                del self._entries[uid]
                self._settle()

    def list(self) -> Sequence[PlacedRecord]:
        self._try()
        with self._lock:
            return [PlacedRecord(entry.placement, self._state(entry)) for _, entry in sorted(self._entries.items())]

    def watch(self, wake: Wake) -> Callable[[], None]:
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake) if wake in self._wakes else None

    def _try(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _id(self, name: str) -> str:
        return next((host.id for host in self._hosts.values() if host.name == name), "")

    def _replace(self, name: str, **changes: object) -> None:
        self._hosts[self._id(name)] = replace(self._hosts[self._id(name)], **changes)  # type: ignore[arg-type]

    def _state_of_new(self, entry: _Entry) -> PlacementState:
        """Return what the caller hears at once: a choice takes time."""
        return Pending("asked for a host") if entry.placement.running else self._state(entry)

    def _change(self, entry: _Entry, wanted: Placement) -> PlacementState:
        if wanted.host and not self._id(wanted.host):
            return Lost(wanted.host, "no node has this name")
        had, entry.placement, entry.pinned = entry.placement, wanted, self._id(wanted.host)
        if (had.memory_bytes, had.cpu_millicores) != (wanted.memory_bytes, wanted.cpu_millicores):
            entry.on = ""  # its task is replaced
        self._settle()
        return self._state(entry)

    def _settle(self) -> None:
        """End what may not stay where it is; then choose for those without a host, the oldest first."""
        for entry in self._entries.values():
            if entry.on and not (entry.placement.running and self._may_stay(entry)):
                entry.on = ""
        for single in self._entries.values():
            if single.placement.running and not single.on:
                single.on = self._choose(single)
        for wake in tuple(self._wakes):
            wake()

    def _may_stay(self, entry: _Entry) -> bool:
        host = self._hosts.get(entry.on)
        if host is None or host.liveness is Liveness.DOWN or host.availability is Availability.DRAINED:
            return False
        return self._suits(entry, host)

    def _suits(self, entry: _Entry, host: SchedulerHost) -> bool:
        if entry.pinned:
            return host.id == entry.pinned
        return host.fit and entry.placement.node_selector.items() <= host.labels.items()

    def _choose(self, entry: _Entry) -> str:
        placement, free = entry.placement, []
        for host in self._hosts.values():
            placements = [single.placement for single in self._entries.values() if single.on == host.id]
            memory = sum(one_placement.memory_bytes for one_placement in placements) + placement.memory_bytes
            cpu = sum(one_placement.cpu_millicores for one_placement in placements) + placement.cpu_millicores
            room = memory <= host.memory_bytes and cpu <= host.cpu_millicores
            up = host.liveness is Liveness.UP and host.availability is Availability.ACTIVE
            if room and up and self._suits(entry, host):
                free.append((len(placements), host.id))
        return min(free)[1] if free else ""

    def _state(self, entry: _Entry) -> PlacementState:
        pinned = self._hosts.get(entry.pinned)
        if pinned is not None and pinned.liveness is Liveness.DOWN:
            return Lost(pinned.name, "heartbeat failure")
        if not entry.placement.running:
            return Suspended(entry.placement.host)
        return Placed(self._hosts[entry.on].name) if entry.on else Pending(_NOWHERE)


def fake_cluster(names: Iterable[str] = ("one", "two", "three")) -> FakeScheduler:
    """A cluster of equal hosts, all of them fit."""
    fake_scheduler = FakeScheduler()
    for name in names:
        fake_scheduler.join(name)
        fake_scheduler.set_host(name, fit=True, labels={})
    return fake_scheduler
