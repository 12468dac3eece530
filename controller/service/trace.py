"""Trace ids: one id from a request to its engine calls, in every log line as `trace_id`.

A request's lines get it from structlog's context (`tracing`). The loop acts later, on another thread, for many requests
at once. So the ids are kept in memory by object and generation (`Traces`). An action's line has the id of the request
that wrote the object last at that generation, also if another host's daemon got that. Ids are lost when the daemon
restarts. Actions of Paddock itself, for warm members of a pool or for an orphan, have none.
"""

import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, cast

import structlog

from controller.kinds.meta import StoredObject
from controller.ports import Store, Transaction

_FIELD = "trace_id"
_MOST = 2_000  # 0.3 KiB each; the loop acts within seconds
_MOST_OBJECTS = 100  # objects of one commit
_TRACE = re.compile(r"[0-9a-f]{32}")
# W3C Trace Context: version, trace id, parent id, flags; parts that a later version adds are ignored.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def trace_of(headers: Sequence[str]) -> str:
    """Return the trace id of a request's `traceparent` headers, or a new one if they are malformed."""
    match = _TRACEPARENT.fullmatch(headers[0].strip()) if len(headers) == 1 else None
    if match is None:
        return secrets.token_hex(16)
    version, trace, parent, suffix = match.groups()
    void = version == "ff" or (version == "00" and suffix) or not trace.strip("0") or not parent.strip("0")
    return secrets.token_hex(16) if void else str(trace)


def tracing(trace: str) -> AbstractContextManager[None]:
    """Add this id to every log line and store write inside; "" changes nothing."""
    return cast(
        "AbstractContextManager[None]", structlog.contextvars.bound_contextvars(**({_FIELD: trace} if trace else {}))
    )


def current_trace() -> str:
    """Return the id of the current request; "" outside of requests."""
    return str(structlog.contextvars.get_contextvars().get(_FIELD, ""))


class Traces:
    """The latest ids by object and generation. Thread-safe."""

    def __init__(self, most: int = _MOST) -> None:
        """Keep at most `most` ids; the oldest are dropped first."""
        self._lock = threading.Lock()
        self._most = most
        self._ids: dict[tuple[str, int], str] = {}

    def of(self, uid: str, generation: int) -> str:
        """Return the id of the last request that wrote this generation; empty if unknown."""
        with self._lock:
            return self._ids.get((uid, generation), "")

    def keep(self, uid: str, generation: int, trace: str) -> None:
        with self._lock:
            self._ids.pop((uid, generation), None)  # the newest comes last
            self._ids[(uid, generation)] = trace
            while len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]

    def hear(self, text: str) -> None:
        """Keep an id that another daemon tells. What can't be read is left out."""
        trace, *revisions = text.split() or ("",)
        for revision in revisions if _TRACE.fullmatch(trace) else ():
            uid, _, generation = revision.rpartition(":")
            if generation.isascii() and generation.isdigit():
                self.keep(uid, int(generation), trace)


def traced(store: Store, traces: Traces) -> Store:
    """Return the store with its writes recorded in `traces`."""
    return cast("Store", _TracedStore(store, traces))


class _TracedStore:
    """A wrapper of the store's transactions; all else is delegated."""

    def __init__(self, store: Store, traces: Traces) -> None:
        self._store, self._traces = store, traces

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        trace = current_trace()
        with self._store.transaction() as transaction:
            recording = _RecordingTransaction(transaction)
            yield cast("Transaction", recording)
            if trace:  # before the commit: the loop may act on it at once
                for uid, generation in recording.written:
                    self._traces.keep(uid, generation, trace)
                if recording.written:
                    revisions = [f"{uid}:{generation}" for uid, generation in islice(recording.written, _MOST_OBJECTS)]
                    transaction.tell(" ".join((trace, *revisions)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _RecordingTransaction:
    """A transaction that records the objects it changed."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.written: dict[tuple[str, int], None] = {}

    def put(self, obj: StoredObject) -> StoredObject:
        stored = self._transaction.put(obj)
        if stored.resource_version != obj.resource_version:
            self.written[(stored.uid, stored.generation)] = None
        return stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)
