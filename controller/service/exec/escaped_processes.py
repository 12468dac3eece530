"""Sandboxes in which a timed-out command has left processes that can't be told from the sandbox's own.

All known processes of the command were killed. The others may be the sandbox's, or the command's own in hiding. Only
killing the whole sandbox ends them for sure. Its restart policy then applies.
"""

from collections.abc import Callable

import structlog

from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import SignalContainer
from controller.kinds.planning.outcome import Ok
from controller.ports import Clock, Engine, Store, StoreError

_log = structlog.get_logger("paddock.exec")


class EscapedProcesses:
    """Kills sandboxes with escaped processes, and records the reason."""

    def __init__(self, *, store: Store, engine: Engine, clock: Clock) -> None:
        self._store, self._engine, self._clock = store, engine, clock

    def handler(self, obj: StoredObject, container: Container) -> Callable[[str], None]:
        """Return a callback, for any thread, that takes a description of the escaped processes of this run."""
        return lambda processes: self._end(obj, container, processes)

    def _end(self, obj: StoredObject, container: Container, processes: str) -> None:
        message = f"a command ran out of time and left {processes}: all of the sandbox was killed"
        now = self._clock.now()
        try:
            with self._store.transaction() as transaction:
                transaction.add_event(Event(obj.ref, "Warning", "ExecEscaped", message, at=now, first_at=now))
        except StoreError as error:  # without a record nothing is done
            _log.warning("escaped processes not killed", object=str(obj.ref), why=str(error))
            return
        outcome = self._engine.act(SignalContainer(container.uid, container.name, container.id, "KILL", message))
        if not isinstance(outcome, Ok):
            _log.warning("escaped processes not killed", object=str(obj.ref), why=str(outcome))
