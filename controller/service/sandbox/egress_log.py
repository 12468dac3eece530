"""Egress log: the requests that a sandbox's proxy allowed and refused, from its egress container's log.

The container is replaced when the list of hosts changes, and its log is lost then. The audit log keeps the sums.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import egress_uid
from controller.kinds.common.log_lines import last_lines
from controller.kinds.registry import Kind
from controller.kinds.runtime.egress_log import Access, parsed
from controller.ports import ChunkStream, Engine, Streams
from controller.service import errors
from controller.service.exec.streams import Opener
from controller.service.objects.objects import Objects


class EgressLogs:
    """The use-case. It neither wakes the sandbox nor counts as use."""

    def __init__(self, *, objects: Objects, engine: Engine, streams: Streams) -> None:
        self._objects, self._engine, self._streams = objects, engine, streams

    def log(
        self, kind: Kind, namespace: str, name: str, *, tail: int | None = None, since: float | None = None
    ) -> Opener:
        """Return an opener of lines, one for each access, oldest first. `since` is Unix seconds.

        Raises NotFound; Conflict for a sandbox without a proxy.
        """
        obj = self._objects.get(kind, namespace, name)
        proxies = self._engine.observe().containers.get(egress_uid(obj.uid), ())
        if not proxies:
            raise errors.Conflict(
                f"sandbox `{name}` has no proxy now: only those of levels with a list of hosts have one, while they run"
            )
        read = partial(self._streams.logs, proxies[0].id, since=since)
        if tail is None:
            return lambda: access_lines(read())
        return lambda: last_lines(access_lines(read()), tail)


def access_lines(stream: ChunkStream) -> Iterator[Chunk]:
    """Yield a readable line for each access in the log."""
    remainder = b""
    with closing(stream) as chunks:
        for chunk in chunks:
            if chunk.stream != "stdout":
                continue
            *lines, remainder = (remainder + chunk.data).split(b"\n")
            for access in filter(None, (parsed(line.decode(errors="replace")) for line in lines)):
                yield Chunk("stdout", f"{_line(access)}\n".encode())


def _line(access: Access) -> str:
    at = datetime.fromtimestamp(access.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    inside = f" inside={access.inside}" if access.inside else ""
    return f"{at}Z {access.verdict:7} {access.method} {access.target} bytes={access.sent_bytes}{inside}"
