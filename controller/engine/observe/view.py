"""View: the observed state of our containers, an immutable snapshot, replaced under a lock.

Every observation has a ticket, drawn *before* its call. For each container the later ticket wins, so that a slow list
never overwrites the result of a newer action or event. A removal always wins: ids are never reused.
"""

import threading
from collections.abc import Iterable, Mapping
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
class Seen:
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
    """Observed state, thread-safe. `wake` is called after each change, outside the lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wake: Wake = _no_listener
        self._tickets = 0
        self._seen: dict[str, Seen] = {}
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

    def seen(self, container_id: str) -> Seen | None:
        return self._seen.get(container_id)

    def is_gone(self, container_id: str) -> bool:
        return container_id in self._gone

    def by_name(self, uid: str, name: str) -> Container | None:
        """Return the container of that object and name, if observed."""
        return next((each for each in self._now.containers.get(uid, ()) if each.name == name), None)

    def put(self, seen: Seen) -> None:
        """Record an inspected container."""
        self._change(found=(seen,))

    def doubt(self, container_id: str) -> None:
        """Mark a container that can't be inspected as Unknown."""
        known = self._seen.get(container_id)
        if known is not None:
            self.put(unknown(known, self.ticket()))

    def gone(self, container_id: str) -> None:
        """Record the certain removal of a container."""
        self._change(gone=(container_id,))

    def not_found(self, container_id: str, ticket: int) -> None:
        """Record a 404 of an inspect. It means removal only for a container that was inspected before.

        The engine lists a container during its creation, some time before it can be inspected.
        """
        known = self._seen.get(container_id)
        if known is not None and known.ticket < ticket:
            self.gone(container_id)

    def settle(
        self, ticket: int, found: Iterable[Seen], listed: frozenset[str], *, engine_run: EngineRun | None = None
    ) -> None:
        """Record a complete observation: `found` was read in it, `listed` is every id of ours that the engine listed.

        A container observed before the list and not listed is gone. `engine_run` is the engine's at that time.
        """
        now = self._clock.now()
        lost = self._lost(engine_run, now)
        self._engine_run = engine_run or self._engine_run
        self._change(found=found, listed=listed, ticket=ticket, blind="", at=now, lost=lost)

    def _lost(self, engine_run: EngineRun | None, now: float) -> tuple[float, float]:
        """Return the engine's latest downtime. With live-restore no container ends with the engine."""
        before, known = self._now, self._engine_run
        if before.facts.live_restore:
            return before.lost
        if not before.at:  # our first observation: only the engine's start tells about the time before
            if engine_run is None:
                return before.lost
            # Later exits are not due to the engine's start, however recent.
            return engine_run.began_at - _STOPPING_SECONDS, min(engine_run.began_at + _STARTING_SECONDS, now)
        again = not engine_run.same(known) if engine_run and known else bool(before.blind)
        return (before.at - _SHUTDOWN_SECONDS, now) if again else before.lost

    def died(self, container_id: str, exit_code: int, at: float) -> None:
        """Record an exit from an event: evidence for a removed container. An existing one is inspected instead."""
        with self._lock:
            self._died.pop(container_id, None)
            self._died[container_id] = End(exit_code, at)
            while len(self._died) > _ENDS_KEPT:
                del self._died[next(iter(self._died))]
        if container_id in self._gone:
            self._change(gone=(container_id,))

    def blind(self, words: str) -> None:
        """Record that the engine is unreachable. Containers stay as last observed."""
        self._change(blind=words)

    def networks(self, networks: Mapping[str, Network]) -> None:
        """Record all our bridges, as just listed."""
        if networks != self._now.networks:
            self._change(networks=networks)

    def guard(self, found: FirewallState) -> None:
        """Record the host's guard of networks."""
        if (found.words, found.lost) != (self._now.unguarded, self._now.guard_lost):
            self._change(unguarded=found.words, guard_lost=found.lost)

    def facts(self, facts: HostFacts) -> None:
        """Record the engine's facts."""
        self._change(facts=facts)

    def agent(self, image: str) -> None:
        """Record the id of the agent's image; "" if it is not on this host."""
        known = self._now.facts
        if known.engine_version and known.agent != image:
            self._change(facts=replace(known, agent=image))

    def _change(
        self,
        *,
        found: Iterable[Seen] = (),
        gone: Iterable[str] = (),
        listed: frozenset[str] | None = None,
        ticket: int = 0,
        **fields: Any,
    ) -> None:
        with self._lock:
            by_uid = dict(self._now.containers)
            missing = () if listed is None else self._missing(ticket, listed)
            self._mark_gone(by_uid, (*gone, *missing))
            self._merge(by_uid, found)
            before = self._now
            ends = self._ends_of(before.ends, (*gone, *missing))
            after = replace(before, **{"containers": MappingProxyType(by_uid), "ends": ends, **fields})
            moved = replace(after, at=before.at) != before
            # An observation without changes updates the time only, and wakes nobody.
            # A blind view keeps the time of its last complete observation.
            at = self._clock.now() if moved and not after.blind else after.at
            self._now = replace(after, revision=before.revision + moved, at=at)
        if moved:
            self._wake()

    def _ends_of(self, before: Mapping[str, End], gone: Iterable[str]) -> Mapping[str, End]:
        """Return the exits of removed containers, the newest last."""
        fresh = {id_: self._died[id_] for id_ in gone if id_ in self._died}
        if all(before.get(id_) == end for id_, end in fresh.items()):
            return before
        kept = {**before, **fresh}
        return MappingProxyType(dict(list(kept.items())[-_ENDS_KEPT:]))

    def _missing(self, ticket: int, listed: frozenset[str]) -> tuple[str, ...]:
        return tuple(id_ for id_, known in self._seen.items() if id_ not in listed and known.ticket < ticket)

    def _merge(self, by_uid: dict[str, tuple[Container, ...]], found: Iterable[Seen]) -> None:
        for each in found:
            id_ = each.container.id
            known = self._seen.get(id_)
            if id_ in self._gone or (known is not None and known.ticket > each.ticket):
                continue
            self._seen[id_] = each
            if known is None or known.container != each.container:
                _replace_in(by_uid, each.container)

    def _mark_gone(self, by_uid: dict[str, tuple[Container, ...]], ids: Iterable[str]) -> None:
        for id_ in ids:
            self._gone[id_] = None
            known = self._seen.pop(id_, None)
            if known is not None:
                _drop_from(by_uid, known.container)
        while len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]


def unknown(known: Seen, ticket: int) -> Seen:
    """Return the same container as Unknown."""
    return Seen(replace(known.container, state=State.UNKNOWN), known.configured, ticket)


def _replace_in(by_uid: dict[str, tuple[Container, ...]], container: Container) -> None:
    others = [each for each in by_uid.get(container.uid, ()) if each.id != container.id]
    by_uid[container.uid] = tuple(sorted([*others, container], key=lambda each: (each.created_at, each.id)))


def _drop_from(by_uid: dict[str, tuple[Container, ...]], container: Container) -> None:
    left = tuple(each for each in by_uid.get(container.uid, ()) if each.id != container.id)
    if left:
        by_uid[container.uid] = left
    else:
        by_uid.pop(container.uid, None)


def _no_listener() -> None:
    """Do nothing: no listener is registered yet."""
