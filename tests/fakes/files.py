"""FakeFiles: ports.Files over folders of this host, with the real operations, in threads of this process."""

import contextlib
import os
import queue
import tempfile
import threading
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.engine.files.operations import OPERATIONS, Job
from controller.engine.files.results import CutOff, outcome
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.files import READ_OPERATIONS, FileError, FileRequest


class FakeFiles:
    """Each container has a folder for its root, with /tmp and /workspace; `root` gives it. Close it."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._roots: dict[str, Path] = {}
        self.begun: dict[str, int] = defaultdict(int)
        self.open: set[FakeWork] = set()

    def root(self, container_id: str) -> Path:
        """The folder that is the root of that container."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
        if container_id not in self._roots:
            path = self._roots[container_id] = Path(self._folder.name) / container_id[:12]
            for entry in ("tmp", "workspace", "etc"):
                (path / entry).mkdir(parents=True)
        return self._roots[container_id]

    def begin(self, container: Container, ask: FileRequest) -> "FakeWork":
        runnings = (State.RUNNING, State.PAUSED) if ask.op in READ_OPERATIONS else (State.RUNNING,)
        if container.state not in runnings:
            raise FileError("NotRunning", "the sandbox is not running")
        self.begun[ask.op] += 1
        folders = {"working_dir": container.working_dir, "home": container.home}
        work = FakeWork(self.root(container.id), {**asdict(ask), **folders}, self.open.discard)
        self.open.add(work)
        return work

    def close(self) -> None:
        for fake_work in list(self.open):
            fake_work.close()
        if self._folder is not None:
            self._folder.cleanup()


class FakeWork:
    """ports.FileWork."""

    def __init__(self, root: Path, ask: dict[str, Any], forget: Any) -> None:
        self._in: queue.Queue[bytes | None] = queue.Queue(4)
        self._out: queue.Queue[bytes] = queue.Queue(4)
        self._words: queue.Queue[dict[str, Any]] = queue.Queue()
        self._rest = b""
        self._ended = self._over = False
        self._closed = threading.Event()
        self._forget = forget
        self._thread = threading.Thread(target=self._run, args=(root, ask), daemon=True)
        self._thread.start()

    def _run(self, root: Path, ask: dict[str, Any]) -> None:
        fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
        try:
            job = Job(fd, ask, self._read, self._write, lambda words: self._words.put({"head": words}))
            self._words.put(outcome(lambda: OPERATIONS[ask["op"]](job)))
        except Exception as error:
            self._words.put({"error": "Failed", "message": repr(error)})
        finally:
            os.close(fd)
            self._over = True

    def _read(self, count: int) -> bytes:
        while not self._rest and not self._ended:
            piece = self._poll(self._in)
            if piece is None:
                self._ended = True
            else:
                self._rest = piece
        sent, self._rest = self._rest[:count], self._rest[count:]
        return sent

    def _poll(self, source: "queue.Queue[Any]") -> Any:
        while not self._closed.is_set():
            try:
                return source.get(timeout=0.02)
            except queue.Empty:
                continue
        raise CutOff("the transfer was cancelled")

    def _write(self, data: bytes) -> None:
        if not data:  # that would be its end
            return
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._out.put(data, timeout=0.02)
                return
        raise CutOff("the transfer was cancelled")

    def send(self, data: bytes) -> None:
        self._put(data) if data else None

    def end(self) -> None:
        self._put(None)

    def _put(self, item: bytes | None) -> None:
        while not self._over:
            with contextlib.suppress(queue.Full):
                self._in.put(item, timeout=0.02)
                return
        if item is not None:
            self.result()
            raise FileError("CutOff", "the transfer was cancelled")

    def receive(self) -> bytes:
        while not self._closed.is_set():
            try:
                return self._out.get(timeout=0.02)
            except queue.Empty:
                if self._over and self._out.empty():
                    return b""
        return b""

    def result(self) -> dict[str, Any]:
        try:
            poll = self._poll(self._words)
        except CutOff as error:
            raise FileError("CutOff", str(error)) from error
        if "error" in poll:
            raise FileError(poll["error"], poll["message"])
        return dict(poll.get("done", poll.get("head")))

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._forget(self)
