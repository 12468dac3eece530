"""PostgreSQL's pipeline mode: statements of a transaction that travel together.

All writers of all hosts wait for the counter row, and who has it keeps it until his commit: so a write makes few round
trips. A statement whose answer nobody needs yet is kept back until one is needed, or until the commit.

psycopg has pipelines of its own, but sends each statement as it comes: a process that is frozen between two of them
leaves the server waiting for the next one with the row locked, and no time-out ends that before PostgreSQL 17. Here
each message is whole, ends with a Sync, and is small enough that libpq gives it to the kernel at once. So a server that
waits for us is `idle in transaction` to itself, which has a time-out. A statement too large for that goes alone, and
what the server has of it, while it waits for the rest, does nothing yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from operator import methodcaller
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
_Prepared = dict[str, bytes]  # names of the prepared statements of a connection by text, the one used last at the end
_PREPARED = "prepared"  # these, in the info of a connection
_MOST_PREPARED = 100  # the server keeps a plan of each
# libpq sends what it has once that is 8 KiB. A statement and each of its values take less than this beside the bytes.
_MOST_BYTES, _STATEMENT_BYTES, _VALUE_BYTES = 8_000, 100, 6
_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
_NUMBERS = count(1)
_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


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
        self._failed = False

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
        if self._failed:
            raise psycopg.errors.InFailedSqlTransaction("an earlier statement of the transaction failed")
        sent, self._kept, self._begin = [*self._begin, *self._kept], [], []
        self._failed = True  # until all is well, and whoever was told agreed
        _send(self._driver, self._prepared, sent)
        self._failed = False

    def commit(self) -> None:
        """Send what was kept back, and commit, unless there is nothing. Whoever is told an answer can still refuse."""
        idle = self._driver.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if idle and not self._kept and not self._failed:
            return
        if any(each.then is not None for each in self._kept):
            self.flush()
        self._kept.append(_Statement("COMMIT"))
        self.flush()


@contextmanager
def pipelined(connection: Connection, begin: str) -> Iterator[None]:
    """Run the block's quick statements in a pipeline; commit at its end."""
    driver: Any = connection.connection.dbapi_connection
    kept = Pipeline(driver, connection.info.setdefault(_PREPARED, {}), begin)
    connection.execution_options(**{KEPT: kept})
    yield
    kept.commit()


def rows_alone(driver: Any, info: dict[Any, Any], statement: Quick, parameters: Mapping[str, Any]) -> _Rows:
    """Return the rows that a statement finds, in a transaction of its own and one round trip."""
    found: list[_Rows] = []
    _send(driver, info.setdefault(_PREPARED, {}), [_bound(statement, parameters, found.append)])
    return found[0]


def send_kept(connection: Connection, *_: object) -> None:
    """Send what was kept back on a connection: something else is about to use it."""
    kept = connection.get_execution_options().get(KEPT)
    if kept is not None:
        kept.flush()


def _send(driver: _Driver, prepared: _Prepared, statements: Sequence[_Statement]) -> None:
    """Send statements, in as few messages as they fit in. Raises the driver's error of the first that fails."""
    begun = driver.pgconn.transaction_status != pq.TransactionStatus.IDLE
    try:
        found = _told(driver, prepared, statements)
    except psycopg.errors.FeatureNotSupported:
        # A migration changed a table of a prepared statement: the connection can't use that any more.
        if begun:
            driver.close()
            raise
        driver.rollback()
        driver.execute("DEALLOCATE ALL")
        driver.rollback()
        prepared.clear()
        found = _told(driver, prepared, statements)
    for then, its_rows in found:
        then(its_rows)


def _told(driver: _Driver, prepared: _Prepared, statements: Sequence[_Statement]) -> Sequence[tuple[_Then, _Rows]]:
    """Send statements. Return whom to tell which rows."""
    _prepare(driver, prepared, [each.text for each in statements])
    found: list[tuple[_Then, _Rows]] = []
    loading: abc.Transformer | None = None
    for message in _messages(statements):
        sent = [("send_query_prepared", prepared[each.text], each.values, each.formats) for each in message]
        answers = _exchange(driver, [methodcaller(*each) for each in sent])
        for each, answer in zip(message, answers, strict=True):
            if each.then is not None:
                loading = loading or Transformer(driver)
                found.append((each.then, _loaded(loading, answer)))
    return found


def _messages(statements: Sequence[_Statement]) -> Iterator[Sequence[_Statement]]:
    message: list[_Statement] = []
    size = 0
    for each in statements:
        needed = _STATEMENT_BYTES + sum(_VALUE_BYTES + len(value or b"") for value in each.values)
        if message and size + needed > _MOST_BYTES:
            yield message
            message, size = [], 0
        message.append(each)
        size += needed
    if message:
        yield message


def _prepare(driver: _Driver, prepared: _Prepared, texts: Sequence[str]) -> None:
    """Prepare the texts that are not, and drop those that were used longest ago."""
    if len(prepared) < _MOST_PREPARED and all(each in prepared for each in texts):
        return
    for each in texts:
        name = prepared.pop(each, b"")
        if not name:
            name = b"paddock_%d" % next(_NUMBERS)
            _exchange(driver, [methodcaller("send_prepare", name, each.encode())])
        prepared[each] = name
    while len(prepared) > _MOST_PREPARED:
        oldest = prepared.pop(next(iter(prepared)))
        _exchange(driver, [methodcaller("send_query_params", b"DEALLOCATE " + oldest, None)])


def _exchange(driver: _Driver, commands: Sequence[Callable[[pq.abc.PGconn], None]]) -> Sequence[pq.abc.PGresult]:
    """Send commands as one message. Return their answers."""
    pgconn = driver.pgconn
    try:
        pgconn.enter_pipeline_mode()
        for each in commands:
            each(pgconn)
        pgconn.pipeline_sync()
        answers: Sequence[pq.abc.PGresult] = driver.wait(_answers(pgconn))
        pgconn.exit_pipeline_mode()
    except BaseException:
        driver.close()  # what it would answer next is another question's
        raise
    for each_answer in answers:
        if each_answer.status not in _DONE:
            raise error_from_result(each_answer)
    return answers


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
_DUMPS: dict[type, tuple[pq.Format, Callable[[Any], bytes | None]]] = {
    str: (pq.Format.TEXT, lambda value: _whole(value.encode())),
    int: (pq.Format.TEXT, lambda value: b"%d" % value),
    float: (pq.Format.TEXT, lambda value: repr(value).encode()),
    bytes: (pq.Format.BINARY, bytes),
    NoneType: (pq.Format.TEXT, lambda _: None),
}


def _whole(text: bytes) -> bytes:
    """Return the text. Raises DataError for a NUL, which would end it."""
    if b"\0" in text:
        raise psycopg.DataError("PostgreSQL text can't contain NUL (0x00) bytes")
    return text


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
