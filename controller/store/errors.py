"""Translation of foreign exceptions to StoreErrors: what happened, and what to do about it.

Never shows a password: a database is named by its path, or by its URL with the password hidden.
"""

import errno
import sqlite3
from dataclasses import dataclass

from sqlalchemy import exc as sql

from controller.ports import ChangesGone, Conflict, StoreError, StoreTooNew


@dataclass(frozen=True, slots=True)
class Fault:
    """`reason` is the label of paddock_store_operation_errors_total; a closed list (REASONS)."""

    reason: str
    error: StoreError


_MESSAGES = {
    "readonly": "not writable; give paddock's user read and write access to it and to its folder",
    "missing": "can't be opened; check that its folder exists and that paddock's user may use it",
    "full": "disk full; free some disk space (nothing was written)",
    "locked": "is held by another process; stop the other writer (a second daemon, a backup, a shell), or try again",
    "corrupt": "damaged, or not a paddock database; move it away and restore a backup",
    "io": "failed to read or write its disk; look for disk errors in the system log",
    "connection": "unreachable; check that the server runs and that the address, user and password are right",
    "timeout": "did not answer in time; it is overloaded or blocked by another session; try again",
    "serialization": "commit conflicts with a concurrent one; try again",
    "integrity": "another row has the same name or uid; read again",
    "schema": "does not have the tables that this version needs; restore a backup, or start with an empty database",
    "data": "refused a value; names and text must be plain Unicode, numbers must fit 64 bits",
    "other": "failed",
}
REASONS = (*_MESSAGES, "conflict", "gone", "too_new", "closed")

# By primary result code (sqlite.org/rescode.html).
_SQLITE = {
    "SQLITE_BUSY": "locked",
    "SQLITE_LOCKED": "locked",
    "SQLITE_READONLY": "readonly",
    "SQLITE_PERM": "readonly",
    "SQLITE_AUTH": "readonly",
    "SQLITE_CANTOPEN": "missing",
    "SQLITE_FULL": "full",
    "SQLITE_CORRUPT": "corrupt",
    "SQLITE_NOTADB": "corrupt",
    "SQLITE_IOERR": "io",
    "SQLITE_CONSTRAINT": "integrity",
    "SQLITE_TOOBIG": "data",
    "SQLITE_MISMATCH": "data",
    "SQLITE_ERROR": "schema",
    "SQLITE_SCHEMA": "schema",
}

# By SQLSTATE, or by its class (the first two characters).
_POSTGRES = {
    "08": "connection",
    "22": "data",
    "23": "integrity",
    "25006": "readonly",
    "28": "connection",
    "3D": "connection",
    "40": "serialization",
    "42501": "readonly",
    "42": "schema",
    "3F": "schema",
    "53100": "full",
    "53": "connection",
    "54": "data",
    "55P03": "locked",
    "57014": "timeout",
    "57": "connection",
    "58": "io",
    "XX001": "corrupt",
    "XX002": "corrupt",
}


def explain(error: Exception, name: str) -> Fault:
    """Translate a foreign exception of the database `name`."""
    reason = _reason(error)
    kind = Conflict if reason == "integrity" else StoreError
    return Fault(reason, kind(f"store {name}: {_MESSAGES[reason]} ({_detail(error)})"))


def reason_of(error: StoreError) -> str:
    """Return the metric reason of an error that the store raised itself."""
    reasons_by_class = ((StoreTooNew, "too_new"), (Conflict, "conflict"), (ChangesGone, "gone"))
    return next((reason for kind, reason in reasons_by_class if isinstance(error, kind)), "other")


def _reason(error: Exception) -> str:
    if isinstance(error, sql.TimeoutError):  # no free connection in the pool
        return "timeout"
    if isinstance(error, sqlite3.Error) or hasattr(error, "sqlstate"):  # psycopg's, which may not be installed
        return _of_driver(error, disconnected=False)
    if isinstance(error, sql.DBAPIError):
        return _of_driver(error.orig, disconnected=error.connection_invalidated)
    if isinstance(error, FileNotFoundError | FileExistsError | NotADirectoryError | IsADirectoryError):
        return "missing"
    if isinstance(error, PermissionError):
        return "readonly"
    if isinstance(error, OSError):
        return {"ENOSPC": "full", "EDQUOT": "full", "EROFS": "readonly"}.get(_errno_name(error), "io")
    if isinstance(error, sql.StatementError | ValueError | TypeError):
        return "data"
    return "other"


def _of_driver(error: BaseException | None, *, disconnected: bool) -> str:
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorname", "")
        return _SQLITE.get("_".join(code.split("_")[:2]), "other")
    state = getattr(error, "sqlstate", None) or ""
    if not state:  # not the server's answer: the driver refused a value, or could not talk to the server at all
        operational = any(base.__name__ == "OperationalError" for base in type(error).__mro__)
        return "connection" if disconnected or operational else "data"
    return _POSTGRES.get(state) or _POSTGRES.get(state[:2], "other")


def _errno_name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "")


def _detail(error: Exception) -> str:
    """Return the cause in one line, without SQL and parameters, which may hold user data."""
    cause = error.orig if isinstance(error, sql.DBAPIError) else error
    if isinstance(cause, OSError):
        return (cause.strerror or str(cause)).lower()
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
