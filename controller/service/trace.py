"""From a request to the engine calls it leads to: one id, which every log line on the way bears as `trace_id`.

A request's lines get it from structlog's context (`tracing`). The loop acts later, on another thread and for many
requests at once: what it needs is kept in memory, by object and generation (`Traces`). The id on an action's line is
that of the request which wrote the object last at that generation. A daemon that starts knows none of those before it;
and what Paddock does of its own accord, for the warm members of a pool or an orphan, has none.
"""

import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import structlog

from controller.kinds.meta import StoredObject
from controller.ports import Store, Transaction

_FIELD = "trace_id"
_MOST = 2_000  # 0.3 KiB each; the loop acts within moments
# W3C Trace Context: version, trace id, parent id, flags; what a later version may add need not be understood.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def trace_of(given: Sequence[str]) -> str:
    """The trace id in the `traceparent` headers of a request; a new one unless there is one that is well formed."""
    found = _TRACEPARENT.fullmatch(given[0].strip()) if len(given) == 1 else None
    if found is None:
        return secrets.token_hex(16)
    version, trace, parent, more = found.groups()
    void = version == "ff" or (version == "00" and more) or not trace.strip("0") or not parent.strip("0")
    return secrets.token_hex(16) if void else str(trace)


def tracing(trace: str) -> AbstractContextManager[None]:
    """Every log line written inside bears this id, and so does what is written to the store; "": nothing changes."""
    return cast(
        AbstractContextManager[None], structlog.contextvars.bound_contextvars(**({_FIELD: trace} if trace else {}))
    )


def current_trace() -> str:
    """The id of the request that is worked on here; "" outside of any."""
    return str(structlog.contextvars.get_contextvars().get(_FIELD, ""))


class Traces:
    """The last ids, by object and generation. Threads may share it."""

    def __init__(self, most: int = _MOST) -> None:
        """`most` is how many are kept: the oldest go first."""
        self._lock = threading.Lock()
        self._most = most
        self._ids: dict[tuple[str, int], str] = {}

    def of(self, uid: str, generation: int) -> str:
        """The id of the request that wrote the object last at this generation; empty: not known."""
        with self._lock:
            return self._ids.get((uid, generation), "")

    def keep(self, uid: str, generation: int, trace: str) -> None:
        with self._lock:
            self._ids.pop((uid, generation), None)  # so that it is the newest
            self._ids[(uid, generation)] = trace
            while len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]


def traced(store: Store, traces: Traces) -> Store:
    """The same store; the ids of what requests write through it are kept in `traces`."""
    return cast(Store, _Traced(store, traces))


class _Traced:
    """Transactions are wrapped; everything else is the store's own."""

    def __init__(self, store: Store, traces: Traces) -> None:
        self._store, self._traces = store, traces

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        trace = current_trace()
        with self._store.transaction() as transaction:
            noted = _Noted(transaction)
            yield cast(Transaction, noted)
            if trace:  # before the commit: the loop may act on it at once
                for uid, generation in noted.written:
                    self._traces.keep(uid, generation, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Noted:
    """A transaction that remembers what it changed."""

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
