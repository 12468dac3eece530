"""The view: what is known of our containers, immutable outside, replaced whole under a lock.

Every piece of knowledge bears a ticket, drawn *before* the call that brought it. Later tickets beat earlier ones,
container by container, so that a slow list can't undo what an action or an event has taught meanwhile. A removal
beats everything: ids are never used twice.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from controller.engine.docker.lifetime import Life
from controller.kinds.observed.observed import Container, End, HostFacts, Observation, State
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.network import Guard, Network
from controller.ports import Clock, Wake

# Ids that are known to be gone: enough to outlive any list that began before.
_GONE_KEPT = 4_000
# Ends of containers that are gone: the planner takes each one down at its next turn.
_ENDS_KEPT = 1000
# So long an engine that is told to stop (dockerd's own default) takes its containers down, and goes on to tell of it.
_SHUTDOWN_SECONDS = 15.0
# What ends so long before an engine begins, or after, ended by the engine's own stop and start (or the host's).
_STOPPING_SECONDS = 120.0
_STARTING_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A container as one inspect showed it.

    `configured` are the limits the engine remembers; `measured`: the container's come from the cgroups. `ticket`
    orders knowledge. `at_ns` (wall clock: ours and the engine's are one host's) and `drift_ns` (wall minus
    monotonic clock; None: never inspected) tell whether an event is older than the inspect.
    """

    container: Container
    configured: Limits
    ticket: int
    at_ns: int = 0
    drift_ns: int | None = None
    measured: bool = False


class View:
    """Thread-safe. `wake` is called after each real change, outside the lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wake: Wake = _nobody
        self._tickets = 0
        self._seen: dict[str, Seen] = {}
        self._gone: dict[str, None] = {}
        self._died: dict[str, End] = {}
        self._life: Life | None = None
        self._now = Observation()

    def on_change(self, wake: Wake) -> None:
        self._wake = wake

    @property
    def now(self) -> Observation:
        return self._now

    def ticket(self) -> int:
        """Draw one before asking the engine."""
        with self._lock:
            self._tickets += 1
            return self._tickets

    def seen(self, container_id: str) -> Seen | None:
        return self._seen.get(container_id)

    def is_gone(self, container_id: str) -> bool:
        return container_id in self._gone

    def by_name(self, uid: str, name: str) -> Container | None:
        """The container of that object and name, if it is known."""
        return next((each for each in self._now.containers.get(uid, ()) if each.name == name), None)

    def put(self, seen: Seen) -> None:
        """One container was read."""
        self._change(found=(seen,))

    def doubt(self, container_id: str) -> None:
        """A known container could not be read: its state is unknown from now on."""
        known = self._seen.get(container_id)
        if known is not None:
            self.put(unknown(known, self.ticket()))

    def gone(self, container_id: str) -> None:
        """This container was removed, for certain."""
        self._change(gone=(container_id,))

    def not_found(self, container_id: str, ticket: int) -> None:
        """An inspect found no such container. Means gone only of one that was read before.

        The engine lists a container that is being created some time before it lets it be inspected.
        """
        known = self._seen.get(container_id)
        if known is not None and known.ticket < ticket:
            self.gone(container_id)

    def settle(self, ticket: int, found: Iterable[Seen], listed: frozenset[str], *, life: Life | None = None) -> None:
        """A whole look: `found` was read in it, `listed` is every id of ours that the engine listed.

        What was known before the list began and is not listed has gone. `life` is the engine's at that time.
        """
        now = self._clock.now()
        lost = self._lost(life, now)
        self._life = life or self._life
        self._change(found=found, listed=listed, ticket=ticket, blind="", at=now, lost=lost)

    def _lost(self, life: Life | None, now: float) -> tuple[float, float]:
        """When the engine was away last, by what is known now. Containers that outlive it are never lost with it."""
        before, known = self._now, self._life
        if before.facts.live_restore:
            return before.lost
        if not before.at:  # our own first look: all that tells of the time before is when the engine began
            if life is None:
                return before.lost
            # What ends after this look is no fault of the engine's start, however young it is.
            return life.began_at - _STOPPING_SECONDS, min(life.began_at + _STARTING_SECONDS, now)
        again = not life.same(known) if life and known else bool(before.blind)
        return (before.at - _SHUTDOWN_SECONDS, now) if again else before.lost

    def died(self, container_id: str, exit_code: int, at: float) -> None:
        """The engine told of an end. It is evidence for when the container is gone; while it is there it is read."""
        with self._lock:
            self._died.pop(container_id, None)
            self._died[container_id] = End(exit_code, at)
            while len(self._died) > _ENDS_KEPT:
                del self._died[next(iter(self._died))]
        if container_id in self._gone:
            self._change(gone=(container_id,))

    def blind(self, words: str) -> None:
        """The engine can't be looked at. Containers stay as they were seen last; absence means nothing."""
        self._change(blind=words)

    def networks(self, networks: Mapping[str, Network]) -> None:
        """All bridges of ours, as they were just listed."""
        if networks != self._now.networks:
            self._change(networks=networks)

    def guard(self, found: Guard) -> None:
        """The host's guard of networks was read."""
        if (found.words, found.lost) != (self._now.unguarded, self._now.guard_lost):
            self._change(unguarded=found.words, guard_lost=found.lost)

    def facts(self, facts: HostFacts) -> None:
        """The engine has said what it is."""
        self._change(facts=facts)

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
            self._bury(by_uid, (*gone, *missing))
            self._merge(by_uid, found)
            before = self._now
            ends = self._told_of(before.ends, (*gone, *missing))
            after = replace(before, **{"containers": MappingProxyType(by_uid), "ends": ends, **fields})
            moved = replace(after, at=before.at) != before
            # A look that found nothing new still moves the time of the view, but neither revision nor sleepers.
            # A blind view keeps the time at which it was last whole.
            at = self._clock.now() if moved and not after.blind else after.at
            self._now = replace(after, revision=before.revision + moved, at=at)
        if moved:
            self._wake()

    def _told_of(self, before: Mapping[str, End], gone: Iterable[str]) -> Mapping[str, End]:
        """The ends of what is gone, the newest last."""
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

    def _bury(self, by_uid: dict[str, tuple[Container, ...]], ids: Iterable[str]) -> None:
        for id_ in ids:
            self._gone[id_] = None
            known = self._seen.pop(id_, None)
            if known is not None:
                _drop_from(by_uid, known.container)
        while len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]


def unknown(known: Seen, ticket: int) -> Seen:
    """The same container, unreadable."""
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


def _nobody() -> None:
    """Nobody listens yet."""
