"""Audit log: caller, request and decision, written in the transaction of the change itself.

An entry's detail has the request's `traceId`, as its log lines do. Entries are counted by category once written.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import structlog

from controller.kinds.access.access import EVERYWHERE, AccessRequest
from controller.kinds.access.audit import AuditEntry, Outcome
from controller.kinds.meta import StoredObject
from controller.ports import Audit, Clock, Meter, NullMeter, Store, StoreError, Transaction
from controller.service import errors
from controller.service.access import access
from controller.service.trace import current_trace

_WINDOW_SECONDS = 60.0
_MOST_REFUSALS = 60  # of one caller in a window: repeated failures must not fill the disk
_MOST_UNKNOWN = 120  # of all unauthenticated callers together: they may have any number of addresses and processes
_MOST_REASON_LETTERS = 500
_LATER_SECONDS = 0.1
_MOST_LETTERS = 253  # of a name: no object has a longer one
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
    """Return an entry for the current caller. Names may be a caller's own words: they are cut."""
    namespace, name = namespace[:_MOST_LETTERS], name[:_MOST_LETTERS]
    asking = access.caller()
    actor, source = (asking.name, asking.source) if asking else ("paddock", "")
    return AuditEntry(
        at=clock.now(),
        actor=actor,
        source=source,
        verb=verb,
        kind=kind,
        namespace=namespace,
        name=name,
        uid=uid,
        outcome=outcome,
        detail=_with_trace(detail or {}),
    )


def _with_trace(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    trace = current_trace()
    return {**detail, "traceId": trace} if trace else detail


def auditing(store: Store, clock: Clock, meter: Meter | None = None) -> Store:
    """Return the store with an audit entry for each put and remove, in the same transaction."""
    return cast("Store", _AuditingStore(store, clock, meter or NullMeter()))


class _AuditingStore:
    """A wrapper of the store's transactions; all else is delegated."""

    def __init__(self, store: Store, clock: Clock, meter: Meter) -> None:
        self._store, self._clock, self._meter = store, clock, meter

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._store.transaction() as transaction:
            audited = _AuditedTransaction(transaction, self._clock)
            yield cast("Transaction", audited)
            entry_count = audited.add_entries()
        if entry_count:
            self._meter.count("paddock_audit_events_total", entry_count, category="change")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _AuditedTransaction:
    """A transaction that records the object before each write."""

    def __init__(self, transaction: Transaction, clock: Clock) -> None:
        self._transaction, self._clock = transaction, clock
        self._before: dict[str, StoredObject | None] = {}
        self._after: dict[str, StoredObject | None] = {}
        self._added = 0

    def audit(self, audit_entry: AuditEntry) -> None:
        """Add an entry that is not about a stored object."""
        self._transaction.audit(audit_entry)
        self._added += 1

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

    def add_entries(self) -> int:
        """Add the entries; return their number."""
        for uid, after in self._after.items():
            change = _change(self._before[uid], after)
            if change is not None:
                obj, verb, detail = change
                subject: Any = {"kind": obj.kind, "namespace": obj.namespace, "name": obj.name, "uid": uid}
                self._transaction.audit(entry(self._clock, verb, detail=detail, **subject))
                self._added += 1
        return self._added

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


def _change(
    before: StoredObject | None, after: StoredObject | None
) -> tuple[StoredObject, str, Mapping[str, Any]] | None:
    """Return the object, the verb and the detail for the audit's entry; None if nothing changed.

    Both an object's removal and its mark, which its finalizers delay the removal by, are a `delete`.
    """
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
    """Entries for events that do not change the store: use of sandboxes, and refusals."""

    def __init__(self, audit: Audit, clock: Clock, meter: Meter | None = None) -> None:
        self._audit, self._clock, self._meter = audit, clock, meter or NullMeter()
        self._window, self._unknown = 0.0, 0
        self._refusals: dict[str, int] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._waiting: list[tuple[AuditEntry, str]] = []

    def record_use(self, ask: AccessRequest, detail: Mapping[str, Any]) -> None:
        """Record use of a sandbox before it starts. Raises ServiceUnavailable if that fails: it must not start then."""
        with errors.translate_store_errors():
            self._append([self._of(ask, ask.sub or ask.verb, "allowed", detail)])
        self._meter.count("paddock_audit_events_total", category="use")

    def record_end(self, ask: AccessRequest, detail: Mapping[str, Any]) -> None:
        """Record the end of a use that `record_use` has recorded, a moment later and without blocking."""
        self._later(self._of(ask, ask.sub or ask.verb, "allowed", detail), "use")

    def record_call(self, tool: str, namespace: str, detail: Mapping[str, Any], *, allowed: bool) -> None:
        """Record an ended call of an MCP tool, a moment later and without blocking. A refusal counts as one."""
        outcome: Outcome = "allowed" if allowed else "refused"
        audit_entry = entry(
            self._clock, "call", kind="Tool", namespace=namespace, name=tool, outcome=outcome, detail=detail
        )
        if allowed:
            self._later(audit_entry, "use")
        elif bounded := self._bound_refusal(audit_entry):
            self._later(bounded, "refusal")

    def flush(self) -> None:
        """Write what is to be written a moment later. A failing store is only logged."""
        with self._lock:
            entries, timer, self._waiting, self._timer = self._waiting, self._timer, [], None
        if timer is not None:
            timer.cancel()
        if not entries:
            return
        try:
            self._append([audit_entry for audit_entry, _ in entries])
        except StoreError as error:
            _log.warning("audit write failed", entries=len(entries), error=str(error))
            return
        for category, count in Counter(category for _, category in entries).items():
            self._meter.count("paddock_audit_events_total", count, category=category)

    def _later(self, audit_entry: AuditEntry, category: str) -> None:
        """Have it written soon, together with others. What is lost with a killed process only says how a use ended."""
        with self._lock:
            self._waiting.append((audit_entry, category))
            if self._timer is None:
                self._timer = threading.Timer(_LATER_SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def record_refusal(self, ask: AccessRequest, why: str) -> None:
        """Record a refusal, up to a limit a minute. A failing store is only logged."""
        self._refuse(self._of(ask, ask.sub or ask.verb, "refused", {"reason": why[:_MOST_REASON_LETTERS]}))

    def record_unknown(self, source: str, why: str) -> None:
        """Record a failed authentication."""
        now, detail = self._clock.now(), {"reason": why[:_MOST_REASON_LETTERS]}
        audit_entry = AuditEntry(now, "unknown", source, "authenticate", outcome="refused", detail=_with_trace(detail))
        self._refuse(audit_entry)

    def _refuse(self, audit_entry: AuditEntry) -> None:
        bounded = self._bound_refusal(audit_entry)
        if bounded is None:
            return
        try:
            self._append([bounded])
        except StoreError as error:
            _log.warning("audit write failed", actor=audit_entry.actor, verb=audit_entry.verb, error=str(error))
            return
        self._meter.count("paddock_audit_events_total", category="refusal")

    def _bound_refusal(self, audit_entry: AuditEntry) -> AuditEntry | None:
        """Return a refusal as it is recorded; None: there were too many this minute."""
        remaining = self._remaining(audit_entry)
        if remaining == 0:
            return replace(
                audit_entry, detail=_with_trace({"more": "further refusals within this minute are not recorded"})
            )
        return audit_entry if remaining > 0 else None

    def _append(self, entries: Sequence[AuditEntry]) -> None:
        try:
            self._audit.append(entries)
        except StoreError:
            self._meter.count("paddock_audit_write_failures_total")
            raise

    def _remaining(self, audit_entry: AuditEntry) -> int:
        """Return how many more entries like this one fit this minute; below 0: not even this one."""
        if not 0 <= audit_entry.at - self._window < _WINDOW_SECONDS:
            self._window, self._unknown, self._refusals = audit_entry.at, 0, {}
        unknown = audit_entry.actor == "unknown"
        key = audit_entry.source if unknown else audit_entry.actor
        count = self._refusals.get(key, 0) + 1
        if count > _MOST_REFUSALS or (unknown and self._unknown >= _MOST_UNKNOWN):
            return -1
        self._refusals[key] = count
        self._unknown += unknown
        remaining = _MOST_REFUSALS - count
        return min(remaining, _MOST_UNKNOWN - self._unknown) if unknown else remaining

    def _of(self, ask: AccessRequest, verb: str, outcome: Outcome, detail: Mapping[str, Any]) -> AuditEntry:
        place = EVERYWHERE if ask.namespace is None else ask.namespace
        return entry(self._clock, verb, kind=ask.kind, namespace=place, name=ask.name, outcome=outcome, detail=detail)
