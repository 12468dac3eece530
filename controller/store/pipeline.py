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
    on_rows: _Then | None = None


class Pipeline:
    """The statements of one transaction on a connection of the driver; `begin` is its first one."""

    def __init__(self, driver: _Driver, prepared: _Prepared, begin: str) -> None:
        self._driver, self._prepared = driver, prepared
        self._begin = [_Statement(begin)]
        self._kept: list[_Statement] = []
        self._failed = False

    def later(self, statement: Quick, parameters: Mapping[str, Any], on_rows: _Then | None = None) -> None:
        """Keep a statement back. `on_rows` gets its rows, before those of later ones are returned."""
        self._kept.append(_bound(statement, parameters, on_rows))

    def rows(self, statement: Quick, parameters: Mapping[str, Any]) -> _Rows:
        """Send what was kept back, and this statement. Return its rows."""
        row_sets: list[_Rows] = []
        self.later(statement, parameters, row_sets.append)
        self.flush()
        return row_sets[0]

    def flush(self) -> None:
        """Begin the transaction if it has not begun, and send what was kept back."""
        if self._failed:
            raise psycopg.errors.InFailedSqlTransaction("an earlier statement of the transaction failed")
        sent = [*self._begin, *self._kept]
        self._kept = []
        self._begin = []
        self._failed = True  # until all is well, and whoever was told agreed
        _send(self._driver, self._prepared, sent)
        self._failed = False

    def commit(self) -> None:
        """Send what was kept back, and commit, unless there is nothing. Whoever is told an answer can still refuse."""
        idle = self._driver.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if idle and not self._kept and not self._failed:
            return
        if any(statement.on_rows is not None for statement in self._kept):
            self.flush()
        self._kept.append(_Statement("COMMIT"))
        self.flush()


@contextmanager
def pipelined(connection: Connection, begin: str) -> Iterator[None]:
    """Run the block's quick statements in a pipeline; commit at its end."""
    driver: Any = connection.connection.dbapi_connection
    pipeline = Pipeline(driver, connection.info.setdefault(_PREPARED, {}), begin)
    connection.execution_options(**{KEPT: pipeline})
    yield
    pipeline.commit()


def rows_alone(driver: Any, info: dict[Any, Any], statement: Quick, parameters: Mapping[str, Any]) -> _Rows:
    """Return the rows that a statement finds, in a transaction of its own and one round trip."""
    row_sets: list[_Rows] = []
    _send(driver, info.setdefault(_PREPARED, {}), [_bound(statement, parameters, row_sets.append)])
    return row_sets[0]


def send_kept(connection: Connection, *_: object) -> None:
    """Send what was kept back on a connection: something else is about to use it."""
    pipeline = connection.get_execution_options().get(KEPT)
    if pipeline is not None:
        pipeline.flush()


def _send(driver: _Driver, prepared: _Prepared, statements: Sequence[_Statement]) -> None:
    """Send statements, in as few messages as they fit in. Raises the driver's error of the first that fails."""
    in_transaction = driver.pgconn.transaction_status != pq.TransactionStatus.IDLE
    try:
        deliveries = _run_statements(driver, prepared, statements)
    except psycopg.errors.FeatureNotSupported:
        # A migration changed a table of a prepared statement: the connection can't use that any more.
        if in_transaction:
            driver.close()
            raise
        driver.rollback()
        driver.execute("DEALLOCATE ALL")
        driver.rollback()
        prepared.clear()
        deliveries = _run_statements(driver, prepared, statements)
    for on_rows, its_rows in deliveries:
        on_rows(its_rows)


def _run_statements(
    driver: _Driver, prepared: _Prepared, statements: Sequence[_Statement]
) -> Sequence[tuple[_Then, _Rows]]:
    """Send statements. Return whom to tell which rows."""
    _prepare(driver, prepared, [statement.text for statement in statements])
    deliveries: list[tuple[_Then, _Rows]] = []
    loading: abc.Transformer | None = None
    for message in _messages(statements):
        sent = [
            ("send_query_prepared", prepared[statement.text], statement.values, statement.formats)
            for statement in message
        ]
        answers = _exchange(driver, [methodcaller(*command) for command in sent])
        for statement, answer in zip(message, answers, strict=True):
            if statement.on_rows is not None:
                loading = loading or Transformer(driver)
                deliveries.append((statement.on_rows, _load_rows(loading, answer)))
    return deliveries


def _messages(statements: Sequence[_Statement]) -> Iterator[Sequence[_Statement]]:
    message: list[_Statement] = []
    size = 0
    for statement in statements:
        needed = _STATEMENT_BYTES + sum(_VALUE_BYTES + len(value or b"") for value in statement.values)
        if message and size + needed > _MOST_BYTES:
            yield message
            message, size = [], 0
        message.append(statement)
        size += needed
    if message:
        yield message


def _prepare(driver: _Driver, prepared: _Prepared, texts: Sequence[str]) -> None:
    """Prepare the texts that are not, and drop those that were used longest ago."""
    if len(prepared) < _MOST_PREPARED and all(text in prepared for text in texts):
        return
    for text in texts:
        name = prepared.pop(text, b"")
        if not name:
            name = b"paddock_%d" % next(_NUMBERS)
            _exchange(driver, [methodcaller("send_prepare", name, text.encode())])
        prepared[text] = name
    while len(prepared) > _MOST_PREPARED:
        oldest = prepared.pop(next(iter(prepared)))
        _exchange(driver, [methodcaller("send_query_params", b"DEALLOCATE " + oldest, None)])


def _exchange(driver: _Driver, commands: Sequence[Callable[[pq.abc.PGconn], None]]) -> Sequence[pq.abc.PGresult]:
    """Send commands as one message. Return their answers."""
    pgconn = driver.pgconn
    try:
        pgconn.enter_pipeline_mode()
        for command in commands:
            command(pgconn)
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
    answers: list[pq.abc.PGresult] = []
    while True:
        yield Wait.RW if pgconn.flush() else Wait.R
        pgconn.consume_input()
        answer_ended = False  # one answer
        while not pgconn.is_busy():
            answer = pgconn.get_result()
            if answer is None and answer_ended:
                break
            answer_ended = answer is None
            if answer is not None and answer.status == pq.ExecStatus.PIPELINE_SYNC:
                return answers
            if answer is not None:
                answers.append(answer)


def _bound(statement: Quick, parameters: Mapping[str, Any], on_rows: _Then | None) -> _Statement:
    compiled = statement.compiled(_DIALECT, parameters)
    values: list[bytes | None] = []
    formats: list[pq.Format] = []
    for parameter in compiled.values(parameters):
        format_, dump = _DUMPS.get(type(parameter)) or _dump_of(parameter)
        formats.append(format_)
        values.append(dump(parameter))
    return _Statement(compiled.text, values, formats, on_rows)


# How the server reads a value. It knows the types of columns: so a text is one prepared statement, whatever the values.
_DUMPS: dict[type, tuple[pq.Format, Callable[[Any], bytes | None]]] = {
    str: (pq.Format.TEXT, lambda value: _without_nul(value.encode())),
    int: (pq.Format.TEXT, lambda value: b"%d" % value),
    float: (pq.Format.TEXT, lambda value: repr(value).encode()),
    bytes: (pq.Format.BINARY, bytes),
    NoneType: (pq.Format.TEXT, lambda _: None),
}


def _without_nul(text: bytes) -> bytes:
    """Return the text. Raises DataError for a NUL, which would end it."""
    if b"\0" in text:
        raise psycopg.DataError("PostgreSQL text can't contain NUL (0x00) bytes")
    return text


def _dump_of(value: object) -> tuple[pq.Format, Callable[[Any], bytes | None]]:
    """Return how the server reads a value of a subclass, such as an enumeration's."""
    dump = next((entry for kind, entry in _DUMPS.items() if isinstance(value, kind)), None)
    if dump is None:
        raise psycopg.ProgrammingError(f"no value of a column: {type(value).__name__}")
    return dump


def _load_rows(loading: abc.Transformer, answer: pq.abc.PGresult) -> _Rows:
    loading.set_pgresult(answer)
    names = [name.decode() for at in range(answer.nfields) if (name := answer.fname(at)) is not None]
    return loading.load_rows(0, answer.ntuples, lambda values: dict(zip(names, values, strict=True)))
