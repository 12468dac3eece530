"""What is known of a detached command, in a folder of its own: a daemon that starts again reads it there."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import structlog

from controller.kinds.runtime.adopted_exec import ExecRef
from controller.service import errors
from controller.service.sandbox.exec_log import ExecLog

_log = structlog.get_logger("paddock.exec")
_NAME = "record.json"
ExecState = Literal["Running", "Exited", "TimedOut", "Killed", "Lost"]


@dataclass(frozen=True, slots=True)
class DetachedExec:
    """A command as it is now. Times are Unix seconds; `Lost`: nobody can tell how it ended, `message` says why."""

    id: str
    command: Sequence[str]
    started_at: float
    state: ExecState = "Running"
    finished_at: float = 0.0
    exit_code: int | None = None
    message: str = ""
    omitted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """The command, whose it is, until when it may run (Unix seconds; 0: no limit), and what it is found again by.

    `by` is who asked for it; "": Paddock itself, or not known.
    """

    shown: DetachedExec
    kind: str
    namespace: str
    name: str
    uid: str
    deadline: float = 0.0
    ref: ExecRef | None = None
    by: str = ""


class ExecRecords:
    """A folder for each, named by its id, in `folder`; without one, nothing can be begun. Errors are ServiceErrors."""

    def __init__(self, folder: Path | None, log_bytes: int) -> None:
        self._folder, self._log_bytes = folder, log_bytes

    def begin(self, record: Record) -> ExecLog:
        """A new record and its log. ServiceUnavailable where it can't be written: nothing runs unrecorded."""
        if self._folder is None:
            raise errors.ServiceUnavailable("detached commands are not kept here")
        try:
            self._of(record.shown.id).mkdir(mode=0o700, parents=True)
            self._write(record)
        except OSError as error:
            self.forget(record.shown.id)
            words = (error.strerror or str(error)).lower()
            raise errors.ServiceUnavailable(f"a detached command can't be recorded: {words}: {self._folder}") from error
        return self.log(record.shown.id)

    def save(self, record: Record) -> None:
        """Write it anew. One that can't be written is only told: what it is about has happened."""
        try:
            self._write(record)
        except OSError as error:
            _log.warning("the record of a detached command can't be written", id=record.shown.id, why=str(error))

    def log(self, id_: str) -> ExecLog:
        """The log of one."""
        return ExecLog(self._of(id_), self._log_bytes)

    def load(self) -> list[Record]:
        """All that are there, oldest first. What can't be read goes."""
        found = []
        for folder in sorted(self._folder.iterdir()) if self._folder and self._folder.is_dir() else ():
            try:
                found.append(_record(json.loads((folder / _NAME).read_text())))
            except (OSError, ValueError, TypeError, KeyError) as error:
                _log.warning("the record of a detached command can't be read: it is forgotten", why=repr(error))
                self.forget(folder.name)
        return sorted(found, key=lambda each: each.shown.started_at)

    def forget(self, id_: str) -> None:
        """Remove it and its log."""
        shutil.rmtree(self._of(id_), ignore_errors=True)

    def _write(self, record: Record) -> None:
        path = self._of(record.shown.id) / _NAME
        spare = path.with_suffix(".new")
        spare.write_text(json.dumps(dataclasses.asdict(record)))
        spare.replace(path)

    def _of(self, id_: str) -> Path:
        assert self._folder is not None  # else there is no id
        return self._folder / id_


def _record(found: dict[str, Any]) -> Record:
    said = found.pop("shown")
    shown = DetachedExec(**{**said, "command": tuple(said["command"])})
    ref = found.pop("ref")
    known = {each.name for each in dataclasses.fields(Record)}  # a newer version, taken back since, may have told more
    told = {name: value for name, value in found.items() if name in known}
    return Record(shown=shown, ref=ExecRef(**ref) if ref else None, **told)
