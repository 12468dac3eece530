"""The audit log as versions with schema 0010 keep it: their module, but for its report and how it calls Quick.

Daemons of these may use a store beside newer ones, during an upgrade (test_audit_upgrade.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from controller.kinds.access.audit import GENESIS, OWN, THIN, THINNED, AuditEntry, entry_hash, fair_share
from controller.store import rows
from controller.store.database import Quick
from controller.store.schema import audit, audit_chain

Operation = Callable[[str], AbstractContextManager[Connection]]
_AT_ONCE = 1000
_THIN_AT_ONCE = 500  # within the parameter limits of both databases; other writers wait briefly
_MOST = 100_000
_CHAIN = select(audit_chain.c.last_id, audit_chain.c.last_hash, audit_chain.c.pruned_id, audit_chain.c.pruned_hash)
_IS_A_CALLERS = ~((audit.c.actor == OWN) & audit.c.verb.in_((THIN, THINNED)))
_COUNTS = select(audit.c.actor, func.count().label("entries")).where(_IS_A_CALLERS).group_by(audit.c.actor)
_INSERT = insert(audit)
_QUICK_CHAIN, _ADD = Quick(_CHAIN), Quick(_INSERT, [column.name for column in audit.c])
_LINK = Quick(update(audit_chain), ["last_id", "last_hash"])
_TO: dict[str, Any] = {"last_id": bindparam("to_id"), "last_hash": bindparam("to_hash")}
_IS_AT = (audit_chain.c.last_id == bindparam("at_id"), audit_chain.c.last_hash == bindparam("at_hash"))
_LINK_FROM = Quick(update(audit_chain).values(_TO).where(*_IS_AT).returning(audit_chain.c.last_id))
_TEXTS = ("actor", "source", "verb", "kind", "namespace", "name", "uid")


@dataclass(frozen=True, slots=True)
class ChainReport:
    """As versions with schema 0010 have it."""

    entries: int
    pruned: int
    last_id: int
    last_hash: str
    problem: str = ""
    thinned: int = 0


class ChainEnd:
    """The end of the chain as this process wrote it last: a guess, for it may have been rolled back, or grown since."""

    def __init__(self) -> None:
        self.guess: tuple[int, str] | None = None


def append(connection: Connection, entries: Sequence[AuditEntry], chain: ChainEnd) -> None:
    """Append entries to the chain, in the caller's transaction, which is the only writer meanwhile."""
    if not entries:
        return
    linked = _linked_from(connection, entries, chain.guess) if chain.guess else None
    if linked is None:
        linked = _linked(connection, entries)
    if len(linked) == 1:
        _ADD.run(connection, linked[0])
    else:
        connection.execute(_INSERT, linked)
    chain.guess = linked[-1]["id"], linked[-1]["hash"]


def _linked_from(
    connection: Connection, entries: Sequence[AuditEntry], end: tuple[int, str]
) -> list[dict[str, Any]] | None:
    """Move the end of the chain by compare-and-set. Return the rows of the entries; None: the end is another one."""
    created = _rows_after(end, entries)
    (at_id, at_hash), last = end, created[-1]
    link = {"at_id": at_id, "at_hash": at_hash, "to_id": last["id"], "to_hash": last["hash"]}
    return created if _LINK_FROM.rows(connection, link) else None


def _linked(connection: Connection, entries: Sequence[AuditEntry]) -> list[dict[str, Any]]:
    """Read the end of the chain and move it. Return the rows of the entries."""
    chain = _QUICK_CHAIN.rows(connection, {})
    created = _rows_after((chain[0]["last_id"], chain[0]["last_hash"]) if chain else (0, GENESIS), entries)
    last = {"last_id": created[-1]["id"], "last_hash": created[-1]["hash"]}
    if chain:
        _LINK.run(connection, last)
    else:
        first = {"id": 1, "pruned_id": 0, "pruned_hash": GENESIS}
        connection.execute(insert(audit_chain).values(**first, **last))
    return created


def _rows_after(end: tuple[int, str], entries: Sequence[AuditEntry]) -> list[dict[str, Any]]:
    """Return the rows of entries that follow on that id and hash."""
    created: list[dict[str, Any]] = []
    for number, entry in enumerate(entries, end[0] + 1):
        texts: dict[str, Any] = {name: rows.clean(getattr(entry, name)) for name in _TEXTS}
        cleaned = replace(entry, id=number, **texts)
        linked = replace(cleaned, hash=entry_hash(cleaned, created[-1]["hash"] if created else end[1]))
        created.append(_row(linked))
    return created


class SqlAudit:
    """`reading` and `writing` open the store's transactions."""

    def __init__(self, reading: Operation, writing: Operation, chain: ChainEnd) -> None:
        self._reading, self._writing, self._chain = reading, writing, chain

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries in a transaction of their own."""
        with self._writing("audit_append") as connection:
            append(connection, entries, self._chain)

    def entries(self, *, since: float = 0.0, limit: int = 1000) -> Sequence[AuditEntry]:
        """Return the `limit` newest entries at or after `since` (Unix seconds), newest last."""
        query = select(audit).where(audit.c.at >= since).order_by(audit.c.id.desc()).limit(min(max(0, limit), _MOST))
        with self._reading("audit_list") as connection:
            return [_entry(row) for row in connection.execute(query).mappings()][::-1]

    def verify(self) -> ChainReport:
        """Verify every hash after the newest pruned entry."""
        with self._reading("audit_verify") as connection:
            chain = connection.execute(_CHAIN).one_or_none()
            if chain is None:
                scalar_one = connection.execute(select(func.count()).select_from(audit)).scalar_one()
                return ChainReport(scalar_one, 0, 0, GENESIS, "the end of the chain is missing" if scalar_one else "")
            return _verified(connection, chain)

    def prune(self, *, before: float, keep: int) -> int:
        """Drop entries before a time, then down to `keep` the oldest of the callers with the most entries."""
        with self._writing("audit_prune") as connection:
            # After a clock jump, an old time amid newer ones must not drop newer entries.
            younger = select(func.min(audit.c.id)).where(audit.c.at >= before)
            oldest_kept = connection.execute(younger).scalar_one()
            prune_through = _prune_through(connection, None if oldest_kept is None else oldest_kept - 1)
        with self._reading("audit_list") as connection:
            counts: dict[str, int] = {row.actor: row.entries for row in connection.execute(_COUNTS)}
        if sum(counts.values()) <= keep:
            return prune_through
        share = fair_share(counts.values(), keep)
        if not share:  # more callers than entries to keep
            with self._writing("audit_prune") as connection:
                chain = connection.execute(_CHAIN).one()
                return prune_through + _prune_through(connection, chain.last_id - max(0, keep))
        for actor, count in counts.items():
            for surplus in range(count - share, 0, -_THIN_AT_ONCE):
                with self._writing("audit_prune") as connection:  # one transaction each: others can write between
                    prune_through += _thin(connection, actor, min(surplus, _THIN_AT_ONCE), self._chain)
        return prune_through


def _prune_through(connection: Connection, through: int | None) -> int:
    """Drop the entries up to that id (None: all). Return their number."""
    chain = connection.execute(_CHAIN).one_or_none()
    if chain is None:
        return 0
    through = chain.last_id if through is None else through
    newest_gone = connection.execute(select(audit).where(audit.c.id == through)).mappings().one_or_none()
    if through <= chain.pruned_id or newest_gone is None:
        return 0
    rowcount: int = connection.execute(delete(audit).where(audit.c.id <= through)).rowcount
    connection.execute(update(audit_chain).values(pruned_id=through, pruned_hash=newest_gone["hash"]))
    return rowcount


def _thin(connection: Connection, actor: str, count: int, end: ChainEnd) -> int:
    """Drop the oldest entries of a caller, log their number, and bridge the gaps in the chain."""
    of_actor = select(audit.c.id, audit.c.at, audit.c.hash).where(audit.c.actor == actor, _IS_A_CALLERS)
    observed = connection.execute(of_actor.order_by(audit.c.id).limit(count)).all()
    chain = connection.execute(_CHAIN).one_or_none()
    if not observed or chain is None:
        return 0
    runs: list[list[Any]] = []
    for row in observed:
        if runs and runs[-1][-1].id + 1 == row.id:
            runs[-1].append(row)
        else:
            runs.append([row])
    connection.execute(delete(audit).where(audit.c.id.in_([entry.id for entry in observed])))
    if runs[0][0].id == chain.pruned_id + 1:
        last = runs.pop(0)[-1]
        connection.execute(update(audit_chain).values(pruned_id=last.id, pruned_hash=last.hash))
    bridges = [(run[-1], {"actor": actor, "entries": len(run)}) for run in runs]
    if bridges:
        entries = [
            AuditEntry(last.at, OWN, "", THINNED, detail=detail, id=last.id, hash=last.hash) for last, detail in bridges
        ]
        connection.execute(_INSERT, [_row(entry) for entry in entries])
        newest = connection.execute(select(audit.c.at).where(audit.c.id == chain.last_id)).scalar_one_or_none()
        total = {"actor": actor, "entries": sum(len(run) for run in runs)}
        append(connection, [AuditEntry(newest or observed[-1].at, OWN, "", THIN, detail=total)], end)
    return len(observed)


def _verified(connection: Connection, chain: Any) -> ChainReport:
    last_id, last_hash, count = chain.pruned_id, chain.pruned_hash, 0
    problem, thinned, pruned = "", 0, 0
    for entry in _all(connection):
        if entry.actor == OWN and entry.verb == THINNED and entry.id - entry.detail.get("entries", 0) == last_id:
            last_id, last_hash, thinned = entry.id, entry.hash, thinned + entry.detail["entries"]
            continue
        if entry.id != last_id + 1:
            problem = f"entry {last_id + 1} is missing" if entry.id > last_id else f"entry {entry.id} is out of order"
        elif entry_hash(entry, last_hash) != entry.hash:
            problem = f"entry {entry.id} was changed, or an entry before it was removed"
        if problem:
            return ChainReport(count, chain.pruned_id, last_id, last_hash, problem, thinned)
        if entry.actor == OWN and entry.verb == THIN:
            pruned += entry.detail["entries"]
        last_id, last_hash, count = entry.id, entry.hash, count + 1
    if (last_id, last_hash) != (chain.last_id, chain.last_hash):
        problem = f"the log ends at entry {last_id}, and {chain.last_id} were written"
    elif thinned > pruned:  # bridges are not hashed themselves; the numbers of dropped entries are
        problem = f"{thinned - pruned} entries were removed without a pruning entry"
    return ChainReport(count, chain.pruned_id, last_id, last_hash, problem, thinned)


def _all(connection: Connection) -> Iterator[AuditEntry]:
    """Iterate over every entry, oldest first."""
    last: int | None = None
    while True:
        query = select(audit).order_by(audit.c.id).limit(_AT_ONCE)
        row_mappings = connection.execute(query if last is None else query.where(audit.c.id > last)).mappings().all()
        yield from (_entry(row) for row in row_mappings)
        if len(row_mappings) < _AT_ONCE:
            return
        last = row_mappings[-1]["id"]


def _row(entry: AuditEntry) -> dict[str, Any]:
    names = ("id", "at", *_TEXTS, "outcome", "hash")
    return {**{name: getattr(entry, name) for name in names}, "detail": rows.to_text(dict(entry.detail))}


def _entry(row: Any) -> AuditEntry:
    return AuditEntry(**{**row, "detail": rows.from_text(row["detail"])})
