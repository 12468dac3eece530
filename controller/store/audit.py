"""`ports.Audit` on the store's tables. Each writer has a chain, and whoever appends to it holds its row.

Versions before had one chain for all daemons, in tables of its own: that of writer "". It is read, verified and pruned;
nothing else is added to it any more.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, literal, select, true, union, update

from controller.kinds.access.audit import (
    GENESIS,
    OWN,
    THIN,
    THINNED,
    AuditEntry,
    AuditReport,
    ChainReport,
    entry_hash,
    fair_share,
)
from controller.ports import StoreError
from controller.store import rows
from controller.store.database import Quick
from controller.store.schema import audit, audit_chain, audit_chains, audit_entries
from controller.store.upsert import insert_of

Operation = Callable[[str], AbstractContextManager[Connection]]
_AT_ONCE = 1000
_THIN_AT_ONCE = 500  # within the parameter limits of both databases; other writers wait briefly
_MOST = 100_000
_MOST_SECONDS = 60.0  # a transaction takes less, whatever it waits for
_TEXTS = ("actor", "source", "verb", "kind", "namespace", "name", "uid")


class _Tables:
    """The tables of chains, and the statements on them. Those on one chain take its writer as `of_writer`.

    In those of older versions no row says its writer: all are of the one chain, that of writer "".
    """

    def __init__(self, entries: Table, ends: Table) -> None:
        self.entries, self._names_writers = entries, "writer" in entries.c
        writer: Any = literal("").label("writer")
        of_end = writer
        mine = cast("Any", true())
        end = cast("Any", true())
        if self._names_writers:
            writer, of_end = entries.c.writer, ends.c.writer
            mine, end = writer == bindparam("of_writer"), of_end == bindparam("of_writer")
        self.mine = mine
        self.rows = select(writer, *(column for column in entries.c if column.name != "writer"))
        self.newest_first = (
            entries.c.at.desc(),
            *([writer.desc()] if self._names_writers else []),
            entries.c.id.desc(),
        )
        self.is_a_callers = ~((entries.c.actor == OWN) & entries.c.verb.in_((THIN, THINNED)))
        counted = select(writer, entries.c.actor, func.count().label("entries")).where(self.is_a_callers)
        self.counts = counted.group_by(*([writer] if self._names_writers else []), entries.c.actor)
        self.ended = select(of_end).select_from(ends)
        self.writers = union(self.ended, select(writer).select_from(entries))
        ends_at = select(ends.c.last_id, ends.c.last_hash, ends.c.pruned_id, ends.c.pruned_hash).where(end)
        self.read_end, self.take_end = Quick(ends_at), Quick(ends_at.with_for_update())
        self.add = Quick(insert(entries), [column.name for column in entries.c])
        linking = update(ends).values(last_id=bindparam("to_id"), last_hash=bindparam("to_hash")).where(end)
        is_at = (ends.c.last_id == bindparam("at_id"), ends.c.last_hash == bindparam("at_hash"))
        self.link, self.link_from = Quick(linking), Quick(linking.where(*is_at).returning(ends.c.last_id))
        self.set_pruned = update(ends).values(pruned_id=bindparam("to_id"), pruned_hash=bindparam("to_hash")).where(end)

    def of(self, writer: str) -> dict[str, Any]:
        """Return the parameters that name the chain."""
        return {"of_writer": writer} if self._names_writers else {}

    def row(self, entry: AuditEntry) -> dict[str, Any]:
        names = ("id", "at", *_TEXTS, "outcome", "hash", *(["writer"] if self._names_writers else []))
        return {**{name: getattr(entry, name) for name in names}, "detail": rows.to_text(dict(entry.detail))}


_OLDER, _NOW = _Tables(audit, audit_chain), _Tables(audit_entries, audit_chains)


def _tables(writer: str) -> _Tables:
    return _NOW if writer else _OLDER


class ChainEnd:
    """The end of a writer's chain as this process wrote it last: a guess, for it may be rolled back, or grown since."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self.guess: tuple[int, str] | None = None
        self._lock = threading.Lock()
        self._is_writing = False
        self._waiting: list[_Batch] = []

    def append_in_turn(
        self, entries: Sequence[AuditEntry], seconds: float, write: Callable[[Sequence[AuditEntry]], None]
    ) -> None:
        """Have entries written by `write`, together with those that wait at the same time, after at most `seconds`.

        Threads queue up here, where it costs no connection, and the first of them writes for all: a crowd of requests
        costs a few transactions. Raises StoreError; what else one thread's entries raise is not raised to the others.
        """
        batch = _Batch(entries)
        with self._lock:
            self._waiting.append(batch)
            if not self._is_writing:
                self._is_writing = True
                batch.woken.set()
        batch.woken.wait(seconds)
        batches: list[_Batch] = []
        with self._lock:
            if batch in self._waiting:
                if not batch.woken.is_set():
                    self._waiting.remove(batch)
                    raise StoreError("audit log: busy with earlier entries; try again")
                batches, self._waiting = self._waiting, []
        if batches:
            self._write_all(batches, write)
        elif not batch.woken.wait(_MOST_SECONDS):  # somebody writes it just now
            raise StoreError("audit log: an entry was not written in time; try again")
        if batch.error is not None:
            raise batch.error

    def _write_all(self, batches: Sequence["_Batch"], write: Callable[[Sequence[AuditEntry]], None]) -> None:
        """Write batches, tell their threads, and give the turn to the first one that waits by now."""
        try:
            _write_together(batches, write)
        finally:
            with self._lock:
                for batch in batches:
                    batch.woken.set()
                self._is_writing = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].woken.set()


@dataclass(eq=False, slots=True)
class _Batch:
    """Entries of one thread."""

    entries: Sequence[AuditEntry]
    woken: threading.Event = field(default_factory=threading.Event)
    """Set once they are written or refused, or, while they wait, to write all that wait."""
    error: Exception | None = field(
        default_factory=lambda: StoreError("audit log: an entry was not written; try again")
    )
    """Reason why they are not written; None: they are."""

    def conclude(self, error: Exception | None) -> None:
        """Tell the thread the result."""
        self.error = error
        self.woken.set()


def _write_together(batches: Sequence[_Batch], write: Callable[[Sequence[AuditEntry]], None]) -> None:
    """Write batches in one transaction; if it fails by something other than the store, each in one of its own."""
    try:
        write([entry for batch in batches for entry in batch.entries])
        for batch in batches:
            batch.conclude(None)
    except StoreError as error:
        for batch in batches:
            batch.conclude(error)
    except Exception as error:
        if len(batches) == 1:
            batches[0].conclude(error)
            return
        for batch in batches:
            _write_together([batch], write)


def append(connection: Connection, entries: Sequence[AuditEntry], chain: ChainEnd) -> None:
    """Append entries to a chain, in the caller's transaction. Others that append to it wait for its end."""
    if not entries:
        return
    linked = _linked_from(connection, entries, chain, chain.guess) if chain.guess else None
    if linked is None:
        linked = _link(connection, entries, chain)
    tables = _tables(chain.writer)
    as_rows = [tables.row(entry) for entry in linked]
    if len(as_rows) == 1:
        tables.add.run(connection, as_rows[0])
    else:
        connection.execute(insert(tables.entries), as_rows)
    chain.guess = linked[-1].id, linked[-1].hash


def _linked_from(
    connection: Connection, entries: Sequence[AuditEntry], chain: ChainEnd, end: tuple[int, str]
) -> Sequence[AuditEntry] | None:
    """Move the end of the chain by compare-and-set. Return the entries in it; None: the end is another one."""
    following = _chain_entries(end, entries, chain.writer)
    tables, last = _tables(chain.writer), following[-1]
    link = {"at_id": end[0], "at_hash": end[1], "to_id": last.id, "to_hash": last.hash}
    updated = tables.link_from.rows(connection, tables.of(chain.writer) | link)
    return following if updated else None


def _link(connection: Connection, entries: Sequence[AuditEntry], chain: ChainEnd) -> Sequence[AuditEntry]:
    """Lock and read the end of the chain, and move it. Return the entries in it."""
    tables = _tables(chain.writer)
    of_chain = tables.of(chain.writer)
    end_rows = tables.take_end.rows(connection, of_chain)
    if not end_rows:
        first = {"last_id": 0, "last_hash": GENESIS, "pruned_id": 0, "pruned_hash": GENESIS}
        new = insert_of(connection.dialect.name)(audit_chains).values(writer=chain.writer, **first)
        connection.execute(new.on_conflict_do_nothing())  # another thread's may be there by now
        end_rows = tables.take_end.rows(connection, of_chain)
    linked = _chain_entries((end_rows[0]["last_id"], end_rows[0]["last_hash"]), entries, chain.writer)
    tables.link.run(connection, of_chain | {"to_id": linked[-1].id, "to_hash": linked[-1].hash})
    return linked


def _chain_entries(end: tuple[int, str], entries: Sequence[AuditEntry], writer: str) -> Sequence[AuditEntry]:
    """Return the entries as they follow on that id and hash."""
    linked: list[AuditEntry] = []
    for number, entry in enumerate(entries, end[0] + 1):
        texts: dict[str, Any] = {name: rows.clean(getattr(entry, name)) for name in _TEXTS}
        cleaned = replace(entry, id=number, writer=writer, **texts)
        linked.append(replace(cleaned, hash=entry_hash(cleaned, linked[-1].hash if linked else end[1])))
    return linked


class SqlAudit:
    """`reading` and `writing` open the store's transactions; `appending` one that need not hold the counter row."""

    def __init__(
        self, reading: Operation, writing: Operation, appending: Operation, chain: ChainEnd, wait_seconds: float
    ) -> None:
        self._reading, self._writing, self._appending, self._chain = reading, writing, appending, chain
        self._wait_seconds = wait_seconds

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries to our own chain, in a transaction without other writes."""
        for entry in entries:  # here, for in the transaction it would refuse the entries of others, too
            rows.to_text([entry.at, dict(entry.detail)])
        self._chain.append_in_turn(entries, self._wait_seconds, self._write)

    def _write(self, entries: Sequence[AuditEntry]) -> None:
        with self._appending("audit_append") as connection:
            append(connection, entries, self._chain)

    def entries(self, *, since: float = 0.0, limit: int = 1000, writer: str | None = None) -> Sequence[AuditEntry]:
        """Return the `limit` newest entries at or after `since` (Unix seconds), newest last.

        Those of one writer are in the order of its chain, those of all in the order of their times.
        """
        most = min(max(0, limit), _MOST)
        with self._reading("audit_list") as connection:
            if writer is not None:
                tables = _tables(writer)
                query = tables.rows.where(tables.mine, tables.entries.c.at >= since)
                newest = query.order_by(tables.entries.c.id.desc()).limit(most)
                of_chain = tables.of(rows.clean(writer))
                return [_entry(row) for row in connection.execute(newest, of_chain).mappings()][::-1]
            selected: list[Any] = []
            for tables in (_OLDER, _NOW):
                query = tables.rows.where(tables.entries.c.at >= since).order_by(*tables.newest_first).limit(most)
                selected += connection.execute(query).mappings()
        selected.sort(key=lambda row: (row["at"], row["writer"], row["id"]))
        return [_entry(row) for row in selected[max(0, len(selected) - most) :]]

    def verify(self) -> AuditReport:
        """Verify every hash of each chain after its newest pruned entry."""
        with self._reading("audit_verify") as connection:
            writers = [writer for tables in (_OLDER, _NOW) for writer in connection.execute(tables.writers).scalars()]
            return AuditReport(tuple(_verify_chain(connection, writer) for writer in sorted(writers)))

    def prune(self, *, before: float, keep: int) -> int:
        """Drop entries before a time, then down to `keep` the oldest of callers with the most entries in a chain."""
        dropped_count = 0
        with self._reading("audit_list") as connection:
            writers = [writer for tables in (_OLDER, _NOW) for writer in connection.execute(tables.ended).scalars()]
        for writer in writers:
            with self._writing("audit_prune") as connection:  # one transaction each: others can write between
                dropped_count += _prune_before(connection, writer, before)
        with self._reading("audit_list") as connection:
            count_rows = [row for tables in (_OLDER, _NOW) for row in connection.execute(tables.counts)]
        counts: dict[tuple[str, str], int] = {(row.writer, row.actor): row.entries for row in count_rows}
        if sum(counts.values()) <= keep:
            return dropped_count
        share = fair_share(counts.values(), keep)
        if not share:  # more callers than entries to keep
            return dropped_count + self._keep_newest(writers, max(0, keep) // len(writers))
        for (writer, actor), count in counts.items():
            for surplus in range(count - share, 0, -_THIN_AT_ONCE):
                with self._writing("audit_prune") as connection:
                    dropped_count += _thin(connection, writer, actor, min(surplus, _THIN_AT_ONCE))
        return dropped_count

    def _keep_newest(self, writers: Sequence[str], keep: int) -> int:
        """Drop all but the newest entries of each writer. Return their number."""
        dropped_count = 0
        for writer in writers:
            with self._writing("audit_prune") as connection:
                end = _end(connection, writer)
                dropped_count += _prune_through(connection, writer, end[0] - keep) if end is not None else 0
        return dropped_count


def _end(connection: Connection, writer: str) -> Any:
    """Return last_id, last_hash, pruned_id and pruned_hash of a chain; None: it has no end."""
    tables = _tables(writer)
    names = ("last_id", "last_hash", "pruned_id", "pruned_hash")
    ends = tables.read_end.rows(connection, tables.of(writer))
    return tuple(ends[0][name] for name in names) if ends else None


def _prune_before(connection: Connection, writer: str, before: float) -> int:
    """Drop the entries of a chain that are older than all younger ones. Return their number."""
    tables = _tables(writer)
    # After a clock jump, an old time amid newer ones must not drop newer entries.
    younger = select(func.min(tables.entries.c.id)).where(tables.mine, tables.entries.c.at >= before)
    oldest_kept = connection.execute(younger, tables.of(writer)).scalar_one()
    return _prune_through(connection, writer, None if oldest_kept is None else oldest_kept - 1)


def _prune_through(connection: Connection, writer: str, through: int | None) -> int:
    """Drop the entries of a chain up to that id (None: all). Return their number."""
    end = _end(connection, writer)
    if end is None:
        return 0
    last_id, _, pruned_id, _ = end
    through = last_id if through is None else through
    tables = _tables(writer)
    of_chain, entries = tables.of(writer), tables.entries
    newest_gone = select(entries.c.hash).where(tables.mine, entries.c.id == through)
    newest_hash = connection.execute(newest_gone, of_chain).scalar_one_or_none()
    if through <= pruned_id or newest_hash is None:
        return 0
    dropped_count: int = connection.execute(
        delete(entries).where(tables.mine, entries.c.id <= through), of_chain
    ).rowcount
    connection.execute(tables.set_pruned, of_chain | {"to_id": through, "to_hash": newest_hash})
    return dropped_count


def _thin(connection: Connection, writer: str, actor: str, count: int) -> int:
    """Drop the oldest entries of a caller in a chain, log their number in it, and bridge the gaps."""
    tables = _tables(writer)
    of_chain, entries = tables.of(writer), tables.entries
    of_actor = select(entries.c.id, entries.c.at, entries.c.hash)
    of_actor = of_actor.where(tables.mine, entries.c.actor == actor, tables.is_a_callers)
    oldest = connection.execute(of_actor.order_by(entries.c.id).limit(count), of_chain).all()
    end = _end(connection, writer)
    if not oldest or end is None:
        return 0
    last_id, _, pruned_id, _ = end
    runs: list[list[Any]] = []
    for entry_row in oldest:
        if runs and runs[-1][-1].id + 1 == entry_row.id:
            runs[-1].append(entry_row)
        else:
            runs.append([entry_row])
    connection.execute(delete(entries).where(tables.mine, entries.c.id.in_([row.id for row in oldest])), of_chain)
    if runs[0][0].id == pruned_id + 1:
        last = runs.pop(0)[-1]
        connection.execute(tables.set_pruned, of_chain | {"to_id": last.id, "to_hash": last.hash})
    bridges = [(run[-1], {"actor": actor, "entries": len(run)}) for run in runs]
    if bridges:
        bridge_entries = [
            AuditEntry(last.at, OWN, "", THINNED, detail=detail, id=last.id, hash=last.hash, writer=writer)
            for last, detail in bridges
        ]
        connection.execute(insert(entries), [tables.row(entry) for entry in bridge_entries])
        newest = select(entries.c.at).where(tables.mine, entries.c.id == last_id)
        at = connection.execute(newest, of_chain).scalar_one_or_none() or oldest[-1].at
        total = {"actor": actor, "entries": sum(len(run) for run in runs)}
        append(connection, [AuditEntry(at, OWN, "", THIN, detail=total)], ChainEnd(writer))
    return len(oldest)


def _verify_chain(connection: Connection, writer: str) -> ChainReport:
    """Check one writer's entries from the oldest that is kept to the end that is stored beside them."""
    end = _end(connection, writer)
    if end is None:
        entry_count = sum(1 for _ in _all(connection, writer))
        return ChainReport(
            writer, entry_count, pruned=0, last_id=0, last_hash=GENESIS, problem="the end of the chain is missing"
        )
    written_id, written_hash, last_id, last_hash = end
    pruned_id = last_id
    count = 0
    last_at = 0.0
    problem = ""
    thinned = 0
    pruned = 0
    for entry in _all(connection, writer):
        if entry.actor == OWN and entry.verb == THINNED and entry.id - entry.detail.get("entries", 0) == last_id:
            last_id = entry.id
            last_hash = entry.hash
            thinned = thinned + entry.detail["entries"]
            continue
        if entry.id != last_id + 1:
            problem = f"entry {last_id + 1} is missing" if entry.id > last_id else f"entry {entry.id} is out of order"
        elif entry_hash(entry, last_hash) != entry.hash:
            problem = f"entry {entry.id} was changed, or an entry before it was removed"
        if problem:
            return ChainReport(
                writer=writer,
                entries=count,
                pruned=pruned_id,
                last_id=last_id,
                last_hash=last_hash,
                problem=problem,
                thinned=thinned,
                last_at=last_at,
            )
        if entry.actor == OWN and entry.verb == THIN:
            pruned += entry.detail["entries"]
        last_id = entry.id
        last_hash = entry.hash
        last_at = entry.at
        count = count + 1
    if (last_id, last_hash) != (written_id, written_hash):
        problem = f"the log ends at entry {last_id}, and {written_id} were written"
    elif thinned > pruned:  # bridges are not hashed themselves; the numbers of dropped entries are
        problem = f"{thinned - pruned} entries were removed without a pruning entry"
    return ChainReport(
        writer=writer,
        entries=count,
        pruned=pruned_id,
        last_id=last_id,
        last_hash=last_hash,
        problem=problem,
        thinned=thinned,
        last_at=last_at,
    )


def _all(connection: Connection, writer: str) -> Iterator[AuditEntry]:
    """Iterate over every entry of a chain, oldest first."""
    last, tables = None, _tables(writer)
    query = tables.rows.where(tables.mine).order_by(tables.entries.c.id).limit(_AT_ONCE)
    while True:
        some = query if last is None else query.where(tables.entries.c.id > last)
        page = connection.execute(some, tables.of(writer)).mappings().all()
        yield from (_entry(row) for row in page)
        if len(page) < _AT_ONCE:
            return
        last = page[-1]["id"]


def _entry(row: Any) -> AuditEntry:
    return AuditEntry(**{**row, "detail": rows.from_text(row["detail"])})
