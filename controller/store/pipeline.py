"""PostgreSQL's pipeline mode: statements of a transaction that travel together.

All writers of all hosts wait for the counter row, and who has it keeps it until his commit: so a write makes few round
trips. A statement whose answer nobody needs yet is kept back until one is needed, or until the commit.

psycopg has pipelines of its own, but sends each statement as it comes: a process that is frozen between two of them
leaves the server waiting for the next one with the row locked, and no time-out ends that before PostgreSQL 17. Here
each message is whole, ends with a Sync, and is small enough that libpq gives it to the kernel at once. So a server that
waits for us says `idle in transaction`, which has a time-out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from types import NoneType
from typing import Any, NamedTuple

import psycopg
from psycopg import abc, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.waiting import Wait
from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from controller.store.database import KEPT, Quick

_Driver = psycopg.Connection[Any]
_Rows = Sequence[Mapping[Any, Any]]
_Then = Callable[[_Rows], None]
_Prepared = dict[str, bytes]  # names of the prepared statements of a connection by text
_PREPARED = "prepared"  # these, in the info of a connection
_MOST_PREPARED = 100  # the server keeps a plan of each; a text too many is planned each time
# libpq sends what it has once that is 8 KiB. What a statement takes beside its text and values is less than this.
_MOST_BYTES, _FRAME_BYTES = 8_000, 150
_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
_NUMBERS = count(1)


class _Statement(NamedTuple):
    text: str
    values: Sequence[bytes | None] = ()
    formats: Sequence[pq.Format] = ()
    then: _Then | None = None


class Pipeline:
    """The statements of one transaction on a connection of the driver; `begin` is its first one."""

    def __init__(self, driver: _Driver, prepared: _Prepared, begin: str) -> None:
        self._driver, self._prepared = driver, prepared
        self._begin = [_Statement(begin)]
        self._kept: list[_Statement] = []

    def later(self, statement: Quick, parameters: Mapping[str, Any], then: _Then | None = None) -> None:
        """Keep a statement back. `then` gets its rows, before those of later ones are returned."""
        self._kept.append(_bound(statement, parameters, then))

    def rows(self, statement: Quick, parameters: Mapping[str, Any]) -> _Rows:
        """Send what was kept back, and this statement. Return its rows."""
        found: list[_Rows] = []
        self.later(statement, parameters, found.append)
        self.flush()
        return found[0]

    def flush(self) -> None:
        """Begin the transaction if it has not begun, and send what was kept back."""
        sent, self._kept, self._begin = [*self._begin, *self._kept], [], []
        send(self._driver, self._prepared, sent)

    def commit(self) -> None:
        """Send what was kept back, and commit, unless there is nothing. Whoever hears an answer can still refuse."""
        if not self._kept and self._driver.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            return
        if any(each.then is not None for each in self._kept):
            self.flush()
        self._kept.append(_Statement("COMMIT"))
        self.flush()


@contextmanager
def pipelined(connection: Connection, begin: str) -> Iterator[None]:
    """Run the block's quick statements in a pipeline; commit at its end."""
    info = connection.info
    driver: Any = connection.connection.dbapi_connection
    kept = info[KEPT] = Pipeline(driver, info.setdefault(_PREPARED, {}), begin)
    try:
        yield
        kept.commit()
    finally:
        del info[KEPT]


def rows_alone(driver: Any, info: dict[Any, Any], statement: Quick, parameters: Mapping[str, Any]) -> _Rows:
    """Return the rows that a statement finds, in a transaction of its own and one round trip."""
    found: list[_Rows] = []
    send(driver, info.setdefault(_PREPARED, {}), [_bound(statement, parameters, found.append)])
    return found[0]


def send_kept(connection: Connection, *_: object) -> None:
    """Send what was kept back on a connection: something else is about to use it."""
    kept = connection.info.get(KEPT)
    if kept is not None:
        kept.flush()


def send(driver: _Driver, prepared: _Prepared, statements: Sequence[_Statement]) -> None:
    """Send statements, in as few messages as they fit in. Raises the driver's error of the first that fails."""
    begun = driver.pgconn.transaction_status != pq.TransactionStatus.IDLE
    try:
        found = [each for message in _messages(statements) for each in _exchange(driver, prepared, message)]
    except psycopg.errors.FeatureNotSupported:
        # A migration changed a table of a prepared statement.
        prepared.clear()
        if begun:
            raise
        driver.rollback()
        found = [each for message in _messages(statements) for each in _exchange(driver, prepared, message)]
    for then, its_rows in found:
        then(its_rows)


def _messages(statements: Sequence[_Statement]) -> Iterator[Sequence[_Statement]]:
    message: list[_Statement] = []
    size = 0
    for each in statements:
        needed = _FRAME_BYTES + len(each.text) + sum(len(value) for value in each.values if value is not None)
        if message and size + needed > _MOST_BYTES:
            yield message
            message, size = [], 0
        message.append(each)
        size += needed
    if message:
        yield message


def _exchange(driver: _Driver, prepared: _Prepared, message: Sequence[_Statement]) -> Sequence[tuple[_Then, _Rows]]:
    """Send a message. Return whom to tell which rows."""
    pgconn = driver.pgconn
    asked: list[tuple[_Statement, bytes]] = []  # with the name that it is prepared as; b"": it is run
    try:
        pgconn.enter_pipeline_mode()
        for each in message:
            name = prepared.get(each.text) or next((name for other, name in asked if other.text == each.text), b"")
            if not name and len(prepared) < _MOST_PREPARED:
                name = b"paddock_%d" % next(_NUMBERS)
                pgconn.send_prepare(name, each.text.encode())
                asked.append((each, name))
            if name:
                pgconn.send_query_prepared(name, each.values, each.formats)
            else:
                pgconn.send_query_params(each.text.encode(), each.values, None, each.formats)
            asked.append((each, b""))
        pgconn.pipeline_sync()
        answers = driver.wait(_answers(pgconn))
        pgconn.exit_pipeline_mode()
    except BaseException:
        driver.close()  # what it would answer next is another question's
        raise
    loading: abc.Transformer = Transformer(driver)
    found: list[tuple[_Then, _Rows]] = []
    for (each, name), answer in zip(asked, answers, strict=True):
        if answer.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise error_from_result(answer)
        if name:
            prepared[each.text] = name
        elif each.then is not None:
            found.append((each.then, _loaded(loading, answer)))
    return found


def _answers(pgconn: pq.abc.PGconn) -> Any:
    """Yield what to wait for, until all is sent and answered. Return the answers."""
    found: list[pq.abc.PGresult] = []
    while True:
        yield Wait.RW if pgconn.flush() else Wait.R
        pgconn.consume_input()
        ended = False  # one answer
        while not pgconn.is_busy():
            answer = pgconn.get_result()
            if answer is None and ended:
                break
            ended = answer is None
            if answer is not None and answer.status == pq.ExecStatus.PIPELINE_SYNC:
                return found
            if answer is not None:
                found.append(answer)


def _bound(statement: Quick, parameters: Mapping[str, Any], then: _Then | None) -> _Statement:
    made = statement.compiled(_DIALECT, parameters)
    values: list[bytes | None] = []
    formats: list[pq.Format] = []
    for each in made.values(parameters):
        format_, dump = _DUMPS.get(type(each)) or _dump_of(each)
        formats.append(format_)
        values.append(dump(each))
    return _Statement(made.text, values, formats, then)


# How the server reads a value. It knows the types of columns: so a text is one prepared statement, whatever the values.
# Text goes with its length: nothing in it can end it.
_DUMPS: dict[type, tuple[pq.Format, Callable[[Any], bytes | None]]] = {
    str: (pq.Format.BINARY, str.encode),
    int: (pq.Format.TEXT, lambda value: b"%d" % value),
    float: (pq.Format.TEXT, lambda value: repr(value).encode()),
    bytes: (pq.Format.BINARY, bytes),
    NoneType: (pq.Format.TEXT, lambda _: None),
}


def _dump_of(value: object) -> tuple[pq.Format, Callable[[Any], bytes | None]]:
    """Return how the server reads a value of a subclass, such as an enumeration's."""
    found = next((each for kind, each in _DUMPS.items() if isinstance(value, kind)), None)
    if found is None:
        raise psycopg.ProgrammingError(f"no value of a column: {type(value).__name__}")
    return found


def _loaded(loading: abc.Transformer, answer: pq.abc.PGresult) -> _Rows:
    loading.set_pgresult(answer)
    names = [name.decode() for at in range(answer.nfields) if (name := answer.fname(at)) is not None]
    return loading.load_rows(0, answer.ntuples, lambda values: dict(zip(names, values, strict=True)))
