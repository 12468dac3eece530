"""Records of attached commands while they run.

A daemon that is killed can't end them. The next one finds their records, lists them as detached, and ends them in time.
"""

import secrets
from collections.abc import Callable, Sequence

from controller.kinds.meta import StoredObject
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import Clock
from controller.service.access import access
from controller.service.exec.exec_records import DetachedExec, ExecRecords, Record, shown_command


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
