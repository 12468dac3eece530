"""What a sandbox's proxy let through and refused: read off the log of its egress container, in words.

That container is replaced when the list of hosts changes, and its log goes with it; the audit log keeps the sums.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import egress_uid
from controller.kinds.registry import Kind
from controller.kinds.runtime.egress_log import Access, parsed
from controller.ports import ChunkStream, Engine, Streams
from controller.service import errors
from controller.service.objects.objects import Objects
from controller.service.sandbox.previous_log import last_lines
from controller.service.sandbox.streams import Opener


class EgressLogs:
    """The use-case. Wakes nothing, and is no use of the box."""

    def __init__(self, *, objects: Objects, engine: Engine, streams: Streams) -> None:
        self._objects, self._engine, self._streams = objects, engine, streams

    def log(
        self, kind: Kind, namespace: str, name: str, *, tail: int | None = None, since: float | None = None
    ) -> Opener:
        """A line for each access, oldest first. `since` is Unix seconds. NotFound; Conflict where there is no proxy."""
        obj = self._objects.get(kind, namespace, name)
        found = self._engine.observe().containers.get(egress_uid(obj.uid), ())
        if not found:
            raise errors.Conflict(
                f"sandbox `{name}` has no proxy now: only those of levels with a list of hosts have one, while they run"
            )
        read = partial(self._streams.logs, found[0].id, since=since)
        if tail is None:
            return lambda: in_words(read())
        return lambda: last_lines(in_words(read()), tail)


def in_words(stream: ChunkStream) -> Iterator[Chunk]:
    """The lines that tell of an access, in words."""
    rest = b""
    with closing(stream) as chunks:
        for chunk in chunks:
            if chunk.stream != "stdout":
                continue
            *lines, rest = (rest + chunk.data).split(b"\n")
            for access in filter(None, (parsed(line.decode(errors="replace")) for line in lines)):
                yield Chunk("stdout", f"{_words(access)}\n".encode())


def _words(access: Access) -> str:
    at = datetime.fromtimestamp(access.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    inside = f" inside={access.inside}" if access.inside else ""
    return f"{at}Z {access.verdict:7} {access.method} {access.target} bytes={access.sent_bytes}{inside}"
