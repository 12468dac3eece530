"""ports.Files: each file operation runs in a worker process (worker.py, fork_server.py) as the sandbox's user.

Docker's archive API sees no tmpfs mounts, can't write on read-only roots, and acts as root. The worker gets the
sandbox's root as a descriptor, opened through PID 1's /proc entry. A writing worker is moved into the sandbox's memory
cgroup first, so its writes count there, and it is the first process that the kernel kills when memory runs out.
"""

import contextlib
import errno
import fcntl
import json
import logging
import marshal
import os
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.archive.moving import write_all
from controller.engine.files import worker as files_worker
from controller.engine.files.forked import Child, ForkServer
from controller.engine.kernel.cgroups import Cgroups, Unreadable, folder_of, own_path, parse_paths
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.files import READ_OPERATIONS, FileError, FileRequest

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">I")
_PIECE_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20
_RESULT_BYTES = 16 << 20
_LOGGED_BYTES = 2000
_CLEAN_SECONDS = 5.0  # for a worker to remove its partial result after its input broke off
_ENDED = "the transfer was cancelled"


class DockerFiles:
    """Files of the containers on this host. Needs root, to become each sandbox's user."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups, self._proc = cgroups, cgroups.proc
        self._lock = threading.Lock()
        self._open: set[Worker] = set()
        self._server = ForkServer()

    def begin(self, container: Container, ask: FileRequest) -> "Worker":
        """Start an operation in a running container (a paused one allows reads). Raises FileError."""
        if container.state is State.PAUSED and ask.op not in READ_OPERATIONS:
            raise FileError("NotRunning", "the sandbox is paused; set it to Running to change its files")
        try:
            with self._entered(container) as (root, process, user):
                worker = Worker(self._server.fork(root, process), self._forget)
        except OSError as error:
            raise FileError("Failed", f"the sandbox's files can't be reached: {_message(error)}") from error
        with self._lock:
            self._open.add(worker)
        try:
            if ask.op not in READ_OPERATIONS:
                self._charge(worker.pid, container)
            folders = {"working_dir": container.working_dir, "home": container.home}
            worker.send(marshal.dumps({**asdict(ask), **user, **folders}))
        except BaseException:
            worker.close()
            raise
        return worker

    def close(self) -> None:
        """Cancel every operation."""
        with self._lock:
            open_workers = list(self._open)
        for worker in open_workers:
            worker.close()
        self._server.close()

    def _forget(self, worker: "Worker") -> None:
        with self._lock:
            self._open.discard(worker)

    @contextmanager
    def _entered(self, container: Container) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Open the root and PID 1 of the sandbox; yield them with its user. Raises OSError, FileError."""
        process_folder = self._proc / str(container.pid)
        with contextlib.ExitStack() as handles:
            if container.pid <= 1:
                raise FileError("NotRunning", "the sandbox is not running; retry once it is Ready")
            process = os.pidfd_open(container.pid)
            handles.callback(os.close, process)
            root = os.open(process_folder / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            handles.callback(os.close, root)
            user = _user(process_folder)
            # Checked once all is open, so that a reused pid is detected.
            paths = parse_paths((process_folder / "cgroup").read_text())
            if not any(own_path(path, container.id) for path in paths.values()):
                raise FileError(
                    "NotRunning", f"container {container.id[:12]} has exited; retry once the sandbox is Ready"
                )
            host, sandbox_root = os.stat(self._proc / "self" / "root"), os.stat(process_folder / "root")
            if (host.st_dev, host.st_ino) == (sandbox_root.st_dev, sandbox_root.st_ino):
                raise FileError("Denied", "the sandbox's root is the host's; its files are not served")
            yield root, process, user

    def _charge(self, pid: int, container: Container) -> None:
        """Move the worker into the sandbox's memory cgroup, so that its tmpfs writes count there."""
        try:
            text = (self._proc / str(container.pid) / "cgroup").read_text()
            folder = folder_of(self._cgroups.folders(text, container.id), "memory")
            Path(folder.path, "cgroup.procs").write_text(str(pid))
        except (OSError, Unreadable) as error:
            raise FileError("Failed", f"the write can't be charged to the sandbox's memory limit: {error}") from error


class Worker:
    """A running operation: ports.FileWork. Its methods may block; `close`, from any thread, unblocks them."""

    def __init__(self, child: Child, forget: Callable[["Worker"], None]) -> None:
        self._child, self.pid = child, child.pid
        self._in, self._out, self._results = child.streams
        # One lock for each descriptor, so that none is closed, and its number reused, while in use.
        self._using = (threading.Lock(), threading.Lock(), threading.Lock())
        self._forget = forget
        self._closing = threading.Lock()
        self._closed = False
        self._said = b""
        for stream in (self._in, self._out):
            with contextlib.suppress(OSError):  # only slower
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, data: bytes) -> None:
        """Send a piece of input; blocks while the worker is behind. Raises FileError once it has ended."""
        if data:
            self._send(_LENGTH.pack(len(data)), data)

    def end(self) -> None:
        """Send the end of the input."""
        self._send(_LENGTH.pack(0))

    def _send(self, *parts: bytes) -> None:
        try:
            with self._using[0]:
                for piece in parts:
                    write_all(self._in.fileno(), piece)
        except (OSError, ValueError):  # ValueError: closed
            self.result()
            raise FileError("CutOff", _ENDED) from None

    def receive(self) -> bytes:
        """Return a piece of output, b"" at its end. `result` tells whether it is complete."""
        try:
            with self._using[1]:
                return os.read(self._out.fileno(), _PIECE_BYTES)
        except (OSError, ValueError):
            return b""

    def hand_over(self) -> tuple[int, int]:
        """See ports.FileWork. Raises FileError once it has ended."""
        try:
            with self._using[0], self._using[1]:
                copies = (os.dup(self._in.fileno()), os.dup(self._out.fileno()))
                self._in.close()
                self._out.close()
        except (OSError, ValueError):
            raise FileError("CutOff", _ENDED) from None
        return copies

    def result(self) -> dict[str, Any]:
        """Return the worker's next result: the metadata before its data, if any; then the outcome at the end.

        Raises FileError.
        """
        line = self._line()
        if not line:
            raise FileError(*self._silent())
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            log.error("file worker failed: %s", line[:_LOGGED_BYTES].decode(errors="replace"))
            raise FileError("Failed", "internal error of Paddock; see the daemon's log") from None
        if "error" in answer:
            raise FileError(answer["error"], answer["message"])
        outcome: dict[str, Any] = answer["done"] if "done" in answer else answer["head"]
        return outcome

    def close(self) -> None:
        """End it; a partial write is removed. From any thread, idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._child.terminate()
            if self._wait_for_exit(_CLEAN_SECONDS) is None:
                self._child.kill()
            self._wait_for_exit(None)
            # Its end has unblocked the threads that waited for it.
            for lock, stream in zip(self._using, (self._in, self._out, self._results), strict=True):
                with lock, contextlib.suppress(OSError):
                    stream.close()
        self._forget(self)

    def _line(self) -> bytes:
        """Return the next line of results, or the rest at the end. Empty: there is no more."""
        with self._using[2]:
            try:
                while b"\n" not in self._said and len(self._said) < _RESULT_BYTES:
                    piece = os.read(self._results.fileno(), _PIECE_BYTES)
                    if not piece:
                        break
                    self._said += piece
            except (OSError, ValueError):
                return b""
            line, _, self._said = self._said.partition(b"\n")
            return line

    def _silent(self) -> tuple[str, str]:
        """Return the error of a worker that ended without a result."""
        code = self._wait_for_exit(_CLEAN_SECONDS)
        if code == files_worker.SANDBOX_ENDED:
            return "NotRunning", "the sandbox stopped meanwhile; retry once it is Ready"
        if code == -signal.SIGKILL and not self._closed:
            return "NoSpace", "the sandbox's memory limit is reached (tmpfs counts); raise it, or remove files"
        return "CutOff", _ENDED

    def _wait_for_exit(self, seconds: float | None) -> int | None:
        """Wait for its exit code for so many seconds; None if it still runs."""
        return self._child.wait_for_exit(seconds)


def _user(process_folder: Path) -> dict[str, Any]:
    """Return the user and groups of PID 1, as of all processes without setuid files."""
    fields = dict(line.split(":", 1) for line in (process_folder / "status").read_text().splitlines() if ":" in line)
    groups = [int(group) for group in fields["Groups"].split()]
    return {"uid": int(fields["Uid"].split()[1]), "gid": int(fields["Gid"].split()[1]), "groups": groups}


def _message(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "permission denied; run the daemon as root"
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return "the container has exited; retry once the sandbox is Ready"
    return (error.strerror or str(error)).lower()
