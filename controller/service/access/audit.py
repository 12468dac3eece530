"""Who asked for what, and the decision: written with the change itself, so that neither is there without the other.

An entry's detail names the request's `traceId`, which the log's lines bear too. What is written is counted by its
category, once it is there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import structlog

from controller.kinds.access.access import EVERYWHERE, Ask
from controller.kinds.access.audit import AuditEntry, Outcome
from controller.kinds.meta import StoredObject
from controller.ports import Audit, Clock, Meter, NullMeter, Store, StoreError, Transaction
from controller.service import errors
from controller.service.access import access
from controller.service.trace import current_trace

_WINDOW_SECONDS = 60.0
_MOST_REFUSALS = 60  # of one caller in a window: whoever knocks all night must not fill the disk
_MOST_UNKNOWN = 120  # of all who are not known together: they can have any number of addresses and processes
_MOST_WORDS = 500
_MOST_LETTERS = 253  # of a name: what is longer is no object's
_PARTS = ("spec", "labels", "annotations", "owner_references")
_log = structlog.get_logger("paddock.audit")


def entry(
    clock: Clock,
    verb: str,
    *,
    kind: str = "",
    namespace: str = "",
    name: str = "",
    uid: str = "",
    outcome: Outcome = "allowed",
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """An entry about whoever asks now."""
    asking = access.caller()
    actor, source = (asking.name, asking.source) if asking else ("paddock", "")
    return AuditEntry(clock.now(), actor, source, verb, kind, namespace, name, uid, outcome, _traced(detail or {}))


def _traced(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    trace = current_trace()
    return {**detail, "traceId": trace} if trace else detail


def auditing(store: Store, clock: Clock, meter: Meter | None = None) -> Store:
    """The same store; each object that a transaction puts or removes has an entry, in that same transaction."""
    return cast(Store, _Auditing(store, clock, meter or NullMeter()))


class _Auditing:
    """Transactions are wrapped; everything else is the store's own."""

    def __init__(self, store: Store, clock: Clock, meter: Meter) -> None:
        self._store, self._clock, self._meter = store, clock, meter

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._store.transaction() as transaction:
            watched = _Watched(transaction, self._clock)
            yield cast(Transaction, watched)
            told = watched.tell()
        if told:
            self._meter.count("paddock_audit_events_total", told, category="change")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Watched:
    """A transaction that remembers what was there before each write."""

    def __init__(self, transaction: Transaction, clock: Clock) -> None:
        self._transaction, self._clock = transaction, clock
        self._before: dict[str, StoredObject | None] = {}
        self._after: dict[str, StoredObject | None] = {}
        self._told = 0

    def audit(self, made: AuditEntry) -> None:
        """An entry for what is no change of a stored object."""
        self._transaction.audit(made)
        self._told += 1

    def put(self, obj: StoredObject) -> StoredObject:
        before = self._transaction.get(obj.kind, obj.namespace, obj.name)
        stored = self._transaction.put(obj)
        self._before.setdefault(stored.uid, before)
        self._after[stored.uid] = stored
        return stored

    def remove(self, obj: StoredObject) -> None:
        before = self._transaction.get(obj.kind, obj.namespace, obj.name)
        self._transaction.remove(obj)
        if before is not None and before.uid == obj.uid:
            self._before.setdefault(obj.uid, before)
            self._after[obj.uid] = None

    def tell(self) -> int:
        """Add the entries; how many there are."""
        for uid, after in self._after.items():
            found = _change(self._before[uid], after)
            if found is not None:
                obj, verb, detail = found
                named: Any = {"kind": obj.kind, "namespace": obj.namespace, "name": obj.name, "uid": uid}
                self._transaction.audit(entry(self._clock, verb, detail=detail, **named))
                self._told += 1
        return self._told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


def _change(
    before: StoredObject | None, after: StoredObject | None
) -> tuple[StoredObject, str, Mapping[str, Any]] | None:
    """The object, the verb and what to tell of it; None when nothing was changed."""
    if after is None:
        return None if before is None else (before, "delete", {"generation": before.generation})
    detail: dict[str, Any] = {"generation": after.generation}
    if before is None:
        return after, "create", detail
    if after.resource_version == before.resource_version:
        return None
    if after.deleted_at is not None and before.deleted_at is None:
        return after, "delete", detail
    fields = [name for name in _PARTS if getattr(before, name) != getattr(after, name)]
    return after, "update", {**detail, "fields": sorted({*fields, *_in_spec(before, after)} - {"spec"})}


def _in_spec(before: StoredObject, after: StoredObject) -> Iterator[str]:
    for name in {*before.spec, *after.spec}:
        if before.spec.get(name) != after.spec.get(name):
            yield f"spec.{name}"


class Recorder:
    """Entries for what is no change of the store: commands in boxes, and what was refused."""

    def __init__(self, audit: Audit, clock: Clock, meter: Meter | None = None) -> None:
        self._audit, self._clock, self._meter = audit, clock, meter or NullMeter()
        self._window, self._unknown = 0.0, 0
        self._refusals: dict[str, int] = {}

    def used(self, ask: Ask, detail: Mapping[str, Any]) -> None:
        """Somebody is about to work in a box. Raises ServiceUnavailable when that can't be written: then they don't."""
        with errors.store_in_words():
            self._append(self._of(ask, ask.sub or ask.verb, "allowed", detail), "use")

    def refused(self, ask: Ask, why: str) -> None:
        """Somebody was refused. Past so many in a minute they are counted; a store that fails makes no difference."""
        self._refuse(self._of(ask, ask.sub or ask.verb, "refused", {"reason": why[:_MOST_WORDS]}))

    def unknown(self, source: str, why: str) -> None:
        """Somebody showed a token that opens nothing, or nothing at all."""
        now, detail = self._clock.now(), {"reason": why[:_MOST_WORDS]}
        made = AuditEntry(now, "unknown", source, "authenticate", outcome="refused", detail=_traced(detail))
        self._refuse(made)

    def _refuse(self, made: AuditEntry) -> None:
        left = self._left(made)
        if left < 0:
            return
        if left == 0:
            more = {"more": "further refusals within this minute are not recorded"}
            made = replace(made, detail=_traced(more))
        try:
            self._append(made, "refusal")
        except StoreError as error:
            _log.warning("a refusal is not in the audit log", actor=made.actor, verb=made.verb, error=str(error))

    def _append(self, made: AuditEntry, category: str) -> None:
        try:
            self._audit.append([made])
        except StoreError:
            self._meter.count("paddock_audit_write_failures_total")
            raise
        self._meter.count("paddock_audit_events_total", category=category)

    def _left(self, made: AuditEntry) -> int:
        """How many more like this one are recorded in this minute; below 0: not even this one."""
        if not 0 <= made.at - self._window < _WINDOW_SECONDS:
            self._window, self._unknown, self._refusals = made.at, 0, {}
        unknown = made.actor == "unknown"
        key = made.source if unknown else made.actor
        count = self._refusals.get(key, 0) + 1
        if count > _MOST_REFUSALS or (unknown and self._unknown >= _MOST_UNKNOWN):
            return -1
        self._refusals[key] = count
        self._unknown += unknown
        left = _MOST_REFUSALS - count
        return min(left, _MOST_UNKNOWN - self._unknown) if unknown else left

    def _of(self, ask: Ask, verb: str, outcome: Outcome, detail: Mapping[str, Any]) -> AuditEntry:
        place = EVERYWHERE if ask.namespace is None else ask.namespace
        named = {"kind": ask.kind, "namespace": place[:_MOST_LETTERS], "name": ask.name[:_MOST_LETTERS]}
        return entry(self._clock, verb, outcome=outcome, detail=detail, **named)
