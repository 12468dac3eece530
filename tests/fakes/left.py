"""FakeAdoptedExecs: ports.AdoptedExecs over commands of the fake engine."""

import threading
from collections.abc import Callable, Iterator

from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import NeverStarted, StreamError


class FakeAdoptedExecs:
    """Adopted execs. `begin` records one with its exit code, or None: it runs until it is ended."""

    def __init__(self) -> None:
        self.codes: dict[str, int | None] = {}
        self.prepared: dict[str, Callable[[], None]] = {}
        self._made = 0

    def begin(self, container_id: str, exit_code: int | None) -> ExecRef:
        ref = self.prepare(container_id)
        self.start(ref, exit_code)
        return ref

    def prepare(self, container_id: str, begins: Callable[[], None] = lambda: None) -> ExecRef:
        """Record one that is not started; `begins` starts it."""
        self._made += 1
        id_ = f"exec-{self._made}"
        self.prepared[id_] = begins
        return ExecRef(id_, container_id, 100, f"mark-{id_}", 1)

    def start(self, ref: ExecRef, exit_code: int | None) -> None:
        self.prepared.pop(ref.exec_id, None)
        self.codes[ref.exec_id] = exit_code

    def end(self, ref: ExecRef) -> None:
        """Kill it."""
        if self.codes.get(ref.exec_id) is None:
            self.codes[ref.exec_id] = 137

    def forget(self) -> None:
        """Forget all, as the engine does when it restarts."""
        self.codes.clear()
        self.prepared.clear()

    def follow(
        self,
        ref: ExecRef,
        *,
        timeout_seconds: float | None,
        escaped: Callable[[str], None] | None = None,
        starts: bool = False,
    ) -> "FakeAdoptedExec":
        if starts and ref.exec_id in self.prepared:
            self.prepared[ref.exec_id]()
        return FakeAdoptedExec(self, ref, timeout_seconds)


class FakeAdoptedExec(Iterator[Chunk]):
    def __init__(self, left: FakeAdoptedExecs, ref: ExecRef, timeout_seconds: float | None) -> None:
        self._left, self.ref, self._timeout_seconds = left, ref, timeout_seconds
        self._closed = threading.Event()
        self._last: list[Chunk] | None = None

    def __next__(self) -> Chunk:
        if self._last is None:
            self._last = self._end()
        if not self._last:
            raise StopIteration
        return self._last.pop(0)

    def _end(self) -> list[Chunk]:
        codes = self._left.codes
        if self.ref.exec_id in self._left.prepared:
            raise NeverStarted("the daemon ended before it started the command")
        if self.ref.exec_id not in codes:
            raise StreamError("the command has ended, and its exit code is unknown")
        if self._closed.is_set():
            return []
        code = codes[self.ref.exec_id]
        if code is not None:
            return [Chunk("exit", str(code).encode())]
        if self._closed.wait(self._timeout_seconds):
            return []
        self._left.end(self.ref)
        return [Chunk("timeout", b""), Chunk("exit", b"124")]

    def close(self) -> None:
        self._left.end(self.ref)
        self._closed.set()

    def detach_stream(self) -> None:
        self._closed.set()
