"""Tail of a container's log, bounded in time and bytes."""

import time

from controller.engine.docker.client import Client
from controller.engine.docker.errors import FOREIGN, Fault
from controller.engine.docker.raw_http import HttpStream
from controller.engine.exec.streams import frames
from controller.kinds.common.log_tail import TAIL_BYTES, TAIL_LINES, Tail, tail_of
from controller.ports import StreamError

_LONGEST_SECONDS = 5.0
# The engine splits long lines into entries of 16 KiB, so a few lines may be large.
_MOST_BYTES = 1 << 20
_KEPT_BYTES = TAIL_BYTES * 8


def read_tail(client: Client, container_id: str, since: float) -> Tail:
    """Return the last lines since `since` (Unix seconds; 0: all), or a note about missing ones.

    Raises Fault only if the engine is unreachable.
    """
    params = {"stdout": "1", "stderr": "1", "tail": str(TAIL_LINES), "since": f"{since:.9f}"}
    path = f"/containers/{container_id}/logs"
    try:
        wire = client.stream(
            "containers.logs", "GET", path, params=params, timeout_seconds=_LONGEST_SECONDS, container=container_id
        )
    except Fault as fault:
        if fault.kind == "connection":
            raise
        return Tail(note=f"the log could not be read: {fault.message}")
    try:
        return _read(wire)
    finally:
        wire.release()


def _read(wire: HttpStream) -> Tail:
    data, note, count, ends_at = b"", "", 0, time.monotonic() + _LONGEST_SECONDS

    def piece() -> bytes:
        wire.wait_at_most(max(0.001, ends_at - time.monotonic()))
        return wire.read()

    try:
        for chunk in frames(piece):
            data, count = (data + chunk.data)[-_KEPT_BYTES:], count + len(chunk.data)
            if count > _MOST_BYTES:
                note = "the log is truncated: its lines are too long"
                break
    except (StreamError, *FOREIGN) as error:
        note = f"the log could not be read completely: {error}"
    return tail_of(data, note)
