"""The log of a sandbox's previous run: the run that its termination record describes.

A container restarts in place, and its log goes on: the run is cut out of it by the times of its start and end. Of a
replaced container only the last lines remain, in the record.
"""

from dataclasses import dataclass
from functools import partial

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.log_lines import last_lines
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.instance_state import Termination
from controller.kinds.registry import Kind
from controller.ports import Store, Streams
from controller.service import errors
from controller.service.exec.streams import Opener, SandboxStreams
from controller.service.objects.objects import Objects

_ON = (State.RUNNING, State.PAUSED)


@dataclass(frozen=True, slots=True)
class PreviousLog:
    """An opener of the log, and a note for its reader ("": none)."""

    open: Opener
    note: str = ""


class PreviousLogs:
    """The use-case. It neither wakes the sandbox nor counts as use."""

    def __init__(self, *, objects: Objects, store: Store, streams: Streams, sandbox_streams: SandboxStreams) -> None:
        self._objects, self._store, self._streams, self._sandbox_streams = objects, store, streams, sandbox_streams

    def log(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> PreviousLog:
        """Return the log of the last ended run. `since` is Unix seconds. Raises NotFound, Conflict."""
        obj = self._objects.get(kind, namespace, name)
        end, container = self._end(obj), self._sandbox_streams.observed_container(obj)
        if end is None:
            raise errors.Conflict(
                f"sandbox `{name}` has no previous run: none has ended so far; leave -p out for the current log"
            )
        if container is None or container.id != end.container_id:
            return _of_record(end, tail)
        started, until = window(end, container)
        begin = started if since is None else max(started, since)
        read = partial(
            self._streams.logs, container.id, since=begin or None, until=until or None, timestamps=timestamps
        )
        return PreviousLog(read if tail is None else lambda: last_lines(read(), tail))

    def _end(self, obj: StoredObject) -> Termination | None:
        with errors.translate_store_errors():
            instance = next(iter(self._store.instances([obj.uid])), None)
        return instance.state.runs.last_end if instance is not None else None


def window(end: Termination, container: Container) -> tuple[float, float]:
    """Return start and end of the run in the container's log, in Unix seconds; 0: the log's start or end.

    A process writes before the engine records its start, and is read after its end. So the log is cut in the middle of
    the pause between two runs.
    """
    if container.state not in _ON or container.started_at <= end.started_at:
        return end.log_since, 0.0
    if end.finished_at < end.started_at and end.reason == "EngineLost":  # the engine did not see the end
        return end.log_since, container.started_at
    return end.log_since, (max(end.finished_at, end.started_at) + container.started_at) / 2


def _of_record(end: Termination, tail: int | None) -> PreviousLog:
    """Return the termination record's last lines; they have no timestamps."""
    lines = end.tail.lines if end.tail is not None else ()
    last_lines_of_run = lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]
    note = "its container was replaced: these are the last kept lines of that run, without timestamps"
    if not lines:
        why = end.tail.note if end.tail is not None else "they were not read in time"
        note = f"its container was replaced, and no lines were kept of that run{f': {why}' if why else ''}"
    return PreviousLog(lambda: (Chunk("stdout", f"{line}\n".encode()) for line in last_lines_of_run), note)
