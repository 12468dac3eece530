"""View: the observed state of our containers, an immutable snapshot, replaced under a lock.

Every observation has a ticket, drawn *before* its call. For each container the later ticket wins, so that a slow list
never overwrites the result of a newer action or event. A removal always wins: ids are never reused.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from controller.engine.docker.lifetime import EngineRun
from controller.kinds.observed.observed import Container, End, HostFacts, Observation, State
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.network import FirewallState, Network
from controller.ports import Clock, Wake

# Removed ids to remember: enough to outlive any list that started before.
_GONE_KEPT = 4_000
# Exits of removed containers to remember, until the next reconcile pass records them.
_ENDS_KEPT = 1000
# Shutdown time-out of dockerd (its default), during which it stops containers and still sends events.
_SHUTDOWN_SECONDS = 15.0
# Exits so long before or after an engine's start are due to the restart of the engine (or the host).
_STOPPING_SECONDS = 120.0
_STARTING_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """A container as observed by one inspect.

    `configured` are the engine's limits; `measured`: the container's own come from the cgroups. `ticket` orders
    observations. `at_ns` (wall clock of the host) and `drift_ns` (wall minus monotonic clock; None: never inspected)
    tell whether an event is older than the inspect.
    """

    container: Container
    configured: Limits
    ticket: int
    at_ns: int = 0
    drift_ns: int | None = None
    measured: bool = False


class View:
    """Observed state, thread-safe. `wake` is called after each change, outside the lock.

    `is_used` is asked at each record of a container, so that no inspect begun before a use hides it.
    """

    def __init__(self, clock: Clock, is_used: Callable[[str], bool] = lambda _: False) -> None:
        self._clock, self._is_used = clock, is_used
        self._lock = threading.Lock()
        self._wake: Wake = _no_listener
        self._tickets = 0
        self._seen: dict[str, ViewEntry] = {}
        self._gone: dict[str, None] = {}
        self._died: dict[str, End] = {}
        self._engine_run: EngineRun | None = None
        self._now = Observation()

    def on_change(self, wake: Wake) -> None:
        self._wake = wake

    @property
    def now(self) -> Observation:
        return self._now

    def ticket(self) -> int:
        """Draw a ticket before calling the engine."""
        with self._lock:
            self._tickets += 1
            return self._tickets

    def entry_of(self, container_id: str) -> ViewEntry | None:
        return self._seen.get(container_id)

    def is_gone(self, container_id: str) -> bool:
        return container_id in self._gone

    def by_name(self, uid: str, name: str) -> Container | None:
        """Return the container of that object and name, if observed."""
        return next((container for container in self._now.containers.get(uid, ()) if container.name == name), None)

    def put(self, entry: ViewEntry) -> None:
        """Record an inspected container."""
        self._change(entries=(entry,))

    def used(self, container_id: str) -> None:
        """Record that a container was used, if it is observed; `is_used` says so from now on."""
        # Read under the lock of the change: its last entry is put back.
        self._change(entries=(self._seen[id_] for id_ in (container_id,) if id_ in self._seen))

    def doubt(self, container_id: str) -> None:
        """Mark a container that can't be inspected as Unknown."""
        entry = self._seen.get(container_id)
        if entry is not None:
            self.put(unknown(entry, self.ticket()))

    def forget(self, container_id: str) -> None:
        """Record the certain removal of a container."""
        self._change(removed_ids=(container_id,))

    def not_found(self, container_id: str, ticket: int) -> None:
        """Record a 404 of an inspect. It means removal only for a container that was inspected before.

        The engine lists a container during its creation, some time before it can be inspected.
        """
        entry = self._seen.get(container_id)
        if entry is not None and entry.ticket < ticket:
            self.forget(container_id)

    def settle(
        self, ticket: int, entries: Iterable[ViewEntry], listed: frozenset[str], *, engine_run: EngineRun | None = None
    ) -> None:
        """Record a complete observation: `entries` were read in it, `listed` is every id that the engine listed.

        A container observed before the list and not listed is gone. `engine_run` is the engine's at that time.
        """
        now = self._clock.now()
        lost = self._lost(engine_run, now)
        self._engine_run = engine_run or self._engine_run
        self._change(entries=entries, listed=listed, ticket=ticket, blind="", at=now, lost=lost)

    def _lost(self, engine_run: EngineRun | None, now: float) -> tuple[float, float]:
        """Return the engine's latest downtime. With live-restore no container ends with the engine."""
        before, last_run = self._now, self._engine_run
        if before.facts.live_restore:
            return before.lost
        if not before.at:  # our first observation: only the engine's start tells about the time before
            if engine_run is None:
                return before.lost
            # Later exits are not due to the engine's start, however recent.
            return engine_run.began_at - _STOPPING_SECONDS, min(engine_run.began_at + _STARTING_SECONDS, now)
        again = not engine_run.is_same_run(last_run) if engine_run and last_run else bool(before.blind)
        return (before.at - _SHUTDOWN_SECONDS, now) if again else before.lost

    def died(self, container_id: str, exit_code: int, at: float) -> None:
        """Record an exit from an event: evidence for a removed container. An existing one is inspected instead."""
        with self._lock:
            self._died.pop(container_id, None)
            self._died[container_id] = End(exit_code, at)
            while len(self._died) > _ENDS_KEPT:
                del self._died[next(iter(self._died))]
        if container_id in self._gone:
            self._change(removed_ids=(container_id,))

    def blind(self, reason: str) -> None:
        """Record that the engine is unreachable. Containers stay as last observed."""
        self._change(blind=reason)

    def networks(self, networks: Mapping[str, Network]) -> None:
        """Record all our bridges, as just listed."""
        if networks != self._now.networks:
            self._change(networks=networks)

    def guard(self, state: FirewallState) -> None:
        """Record the host's guard of networks."""
        if (state.message, state.lost) != (self._now.unguarded, self._now.guard_lost):
            self._change(unguarded=state.message, guard_lost=state.lost)

    def facts(self, facts: HostFacts) -> None:
        """Record the engine's facts."""
        self._change(facts=facts)

    def agent(self, image: str) -> None:
        """Record the id of the agent's image; "" if it is not on this host."""
        facts = self._now.facts
        if facts.engine_version and facts.agent != image:
            self._change(facts=replace(facts, agent=image))

    def _change(
        self,
        *,
        entries: Iterable[ViewEntry] = (),
        removed_ids: Iterable[str] = (),
        listed: frozenset[str] | None = None,
        ticket: int = 0,
        **fields: Any,
    ) -> None:
        with self._lock:
            by_uid = dict(self._now.containers)
            missing = () if listed is None else self._missing(ticket, listed)
            self._mark_gone(by_uid, (*removed_ids, *missing))
            self._merge(by_uid, entries)
            before = self._now
            ends = self._ends_of(before.ends, (*removed_ids, *missing))
            after = replace(before, **{"containers": MappingProxyType(by_uid), "ends": ends, **fields})
            has_changed = replace(after, at=before.at) != before
            # An observation without changes updates the time only, and wakes nobody.
            # A blind view keeps the time of its last complete observation.
            at = self._clock.now() if has_changed and not after.blind else after.at
            self._now = replace(after, revision=before.revision + has_changed, at=at)
        if has_changed:
            self._wake()

    def _ends_of(self, before: Mapping[str, End], removed_ids: Iterable[str]) -> Mapping[str, End]:
        """Return the exits of removed containers, the newest last."""
        fresh = {id_: self._died[id_] for id_ in removed_ids if id_ in self._died}
        if all(before.get(id_) == end for id_, end in fresh.items()):
            return before
        ends = {**before, **fresh}
        return MappingProxyType(dict(list(ends.items())[-_ENDS_KEPT:]))

    def _missing(self, ticket: int, listed: frozenset[str]) -> tuple[str, ...]:
        return tuple(id_ for id_, entry in self._seen.items() if id_ not in listed and entry.ticket < ticket)

    def _merge(self, by_uid: dict[str, tuple[Container, ...]], entries: Iterable[ViewEntry]) -> None:
        for entry in entries:
            id_ = entry.container.id
            former = self._seen.get(id_)
            if id_ in self._gone or (former is not None and former.ticket > entry.ticket):
                continue
            if (is_used := self._is_used(id_)) != entry.container.is_used:
                entry = replace(entry, container=replace(entry.container, is_used=is_used))
            self._seen[id_] = entry
            if former is None or former.container != entry.container:
                _replace_in(by_uid, entry.container)

    def _mark_gone(self, by_uid: dict[str, tuple[Container, ...]], ids: Iterable[str]) -> None:
        for id_ in ids:
            self._gone[id_] = None
            entry = self._seen.pop(id_, None)
            if entry is not None:
                _drop_from(by_uid, entry.container)
        while len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]


def unknown(entry: ViewEntry, ticket: int) -> ViewEntry:
    """Return the same container as Unknown."""
    return ViewEntry(replace(entry.container, state=State.UNKNOWN), entry.configured, ticket)


def _replace_in(by_uid: dict[str, tuple[Container, ...]], container: Container) -> None:
    other_containers = [
        other_container for other_container in by_uid.get(container.uid, ()) if other_container.id != container.id
    ]
    by_uid[container.uid] = tuple(
        sorted([*other_containers, container], key=lambda listed: (listed.created_at, listed.id))
    )


def _drop_from(by_uid: dict[str, tuple[Container, ...]], container: Container) -> None:
    remaining = tuple(listed for listed in by_uid.get(container.uid, ()) if listed.id != container.id)
    if remaining:
        by_uid[container.uid] = remaining
    else:
        by_uid.pop(container.uid, None)


def _no_listener() -> None:
    """Do nothing: no listener is registered yet."""
