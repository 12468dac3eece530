"""Records of commands that may outlive the daemon, each in a folder of its own, for the next daemon to load.

Attached commands have one while they run: a daemon that is killed can't end them. The next one lists them as detached,
and ends them in time.
"""

import dataclasses
import json
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import structlog

from controller.kinds.meta import StoredObject
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import Clock
from controller.service import errors
from controller.service.access import access
from controller.service.exec.exec_log import ExecLog

_log = structlog.get_logger("paddock.exec")
_NAME = "record.json"
ExecState = Literal["Running", "Exited", "TimedOut", "Killed", "Lost", "NotStarted"]


@dataclass(frozen=True, slots=True)
class DetachedExec:
    """A detached command's state. Times are Unix seconds.

    `Lost`: its end is unknown, for the reason in `message`.
    `NotStarted`: the daemon ended before it started the command.
    """

    id: str
    command: Sequence[str]
    started_at: float
    state: ExecState = "Running"
    finished_at: float = 0.0
    exit_code: int | None = None
    message: str = ""
    omitted_bytes: int = 0


def shown_command(command: Sequence[str]) -> Sequence[str]:
    """Return a command as it can be shown: its arguments need not be UTF-8."""
    return tuple(os.fsencode(argument).decode(errors="replace") for argument in command)


@dataclass(frozen=True, slots=True)
class Record:
    """The command, its object, its deadline (Unix seconds; 0: none), and the reference to adopt it by.

    `by` is the caller's name; "" for Paddock itself, or if unknown. `attached`: it was started attached to its client,
    by its streams or a terminal, and forgotten at its end; "": it was started detached.
    """

    shown: DetachedExec
    kind: str
    namespace: str
    name: str
    uid: str
    deadline: float = 0.0
    ref: ExecRef | None = None
    by: str = ""
    attached: Literal["", "streams", "terminal"] = ""


class ExecRecords:
    """Records in `folder`, a sub-folder for each id. Without `folder` none can start. Raises ServiceError."""

    def __init__(self, folder: Path | None, log_bytes: int) -> None:
        self._folder, self._log_bytes = folder, log_bytes

    def begin(self, record: Record) -> ExecLog:
        """Create a record and its log. Raises ServiceUnavailable if that fails: no command runs unrecorded."""
        if self._folder is None:
            raise errors.ServiceUnavailable("detached commands are not served by this daemon")
        try:
            self._of(record.shown.id).mkdir(mode=0o700, parents=True)
            self._write(record)
        except OSError as error:
            self.forget(record.shown.id)
            reason = (error.strerror or str(error)).lower()
            raise errors.ServiceUnavailable(f"detached command can't be recorded: {reason}: {self._folder}") from error
        return self.log(record.shown.id)

    def save_reference(self, record: Record) -> None:
        """Overwrite a record before its command starts. Raises ServiceUnavailable: it must not start then."""
        try:
            self._write(record)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise errors.ServiceUnavailable(f"command can't be recorded: {reason}: {self._folder}") from error

    def save(self, record: Record) -> None:
        """Write a record. A failure is only logged: its end has happened, and an attached one may start."""
        if self._folder is None:
            return
        try:
            self._of(record.shown.id).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(record)
        except OSError as error:
            _log.warning("command record not written", id=record.shown.id, why=str(error))

    def log(self, id_: str) -> ExecLog:
        """Return a command's log."""
        return ExecLog(self._of(id_), self._log_bytes)

    def load(self) -> list[Record]:
        """Return all records, oldest first. Unreadable ones are removed."""
        records = []
        for folder in sorted(self._folder.iterdir()) if self._folder and self._folder.is_dir() else ():
            try:
                records.append(_record(json.loads((folder / _NAME).read_text())))
            except (OSError, ValueError, TypeError, KeyError) as error:
                _log.warning("command record unreadable, removed", why=repr(error))
                self.forget(folder.name)
        return sorted(records, key=lambda record: record.shown.started_at)

    def forget(self, id_: str) -> None:
        """Remove a record and its log."""
        if self._folder is not None:
            shutil.rmtree(self._of(id_), ignore_errors=True)

    def _write(self, record: Record) -> None:
        path = self._of(record.shown.id) / _NAME
        spare = path.with_suffix(".new")
        spare.write_text(json.dumps(dataclasses.asdict(record)))
        spare.replace(path)

    def _of(self, id_: str) -> Path:
        assert self._folder is not None  # else there is no id
        return self._folder / id_


class AttachedExecs:
    """Writes the records. Thread-safe."""

    def __init__(self, records: ExecRecords, clock: Clock) -> None:
        self._records, self._clock = records, clock

    def recorder(
        self, obj: StoredObject, command: Sequence[str], limit: float | None, *, tty: bool
    ) -> tuple[Callable[[ExecRef], None], Callable[[], None]]:
        """Return a callback that records a command before it starts, and one that forgets it at its end.

        `limit` is its time limit in seconds.
        """
        caller, id_, saved = access.caller(), secrets.token_hex(6), []
        by = caller.name if caller else ""

        def prepared(ref: ExecRef) -> None:
            now = self._clock.now()
            detached_exec = DetachedExec(id_, shown_command(command), now)
            deadline = now + limit if limit else 0.0
            place = (obj.kind, obj.namespace, obj.name, obj.uid)
            saved.append(id_)
            self._records.save(
                Record(detached_exec, *place, deadline, ref, by, attached="terminal" if tty else "streams")
            )

        def record_end() -> None:
            if saved:
                self._records.forget(id_)

        return prepared, record_end


def _record(document: dict[str, Any]) -> Record:
    data = document.pop("shown")
    detached_exec = DetachedExec(**{**data, "command": tuple(data["command"])})
    ref = document.pop("ref")
    field_names = {field.name for field in dataclasses.fields(Record)}  # after a downgrade there may be newer fields
    fields = {name: value for name, value in document.items() if name in field_names}
    return Record(shown=detached_exec, ref=ExecRef(**ref) if ref else None, **fields)
