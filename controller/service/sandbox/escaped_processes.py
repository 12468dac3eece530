"""What becomes of a box in which a command has left processes behind that can't be told from the box's own.

Its time was over and all that is known to be the command's was killed. What is left may be the box's, or may be what
the command hid from that: only the end of the whole box ends it for sure. The restart policy says what comes next.
"""

from collections.abc import Callable

import structlog

from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import SignalContainer
from controller.kinds.planning.outcome import Ok
from controller.ports import Clock, Engine, Store, StoreError

_log = structlog.get_logger("paddock.exec")


class Escapes:
    """Ends boxes, and records why."""

    def __init__(self, *, store: Store, engine: Engine, clock: Clock) -> None:
        self._store, self._engine, self._clock = store, engine, clock

    def handler(self, obj: StoredObject, container: Container) -> Callable[[str], None]:
        """What to call, from any thread, with a sentence about what was left in this run of that container."""
        return lambda left: self._end(obj, container, left)

    def _end(self, obj: StoredObject, container: Container, left: str) -> None:
        words = f"a command ran out of time and left {left}: all of the sandbox was killed"
        now = self._clock.now()
        try:
            with self._store.transaction() as transaction:
                transaction.add_event(Event(obj.ref, "Warning", "ExecEscaped", words, at=now, first_at=now))
        except StoreError as error:  # nothing is done unrecorded
            _log.warning("a sandbox with such processes goes on", object=str(obj.ref), why=str(error))
            return
        outcome = self._engine.act(SignalContainer(container.uid, container.name, container.id, "KILL", words))
        if not isinstance(outcome, Ok):
            _log.warning("a sandbox with such processes could not be killed", object=str(obj.ref), why=str(outcome))
