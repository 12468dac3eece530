"""ports.Files: one file operation in one box, by a process of its own (files_worker.py) that becomes the box's user.

Docker's archive API sees neither tmpfs mounts nor writes on read-only roots, and acts as root. Here the box's root is
entered by PID 1's /proc entry, held as a descriptor, and handed to the worker. What writes is charged to the box's
memory: the worker is moved into its cgroup first, and is the first that the kernel ends if that is not enough.
"""

import contextlib
import errno
import fcntl
import json
import logging
import marshal
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from controller.archive.moving import write_all
from controller.engine.files import worker as files_worker
from controller.engine.kernel.cgroups import Cgroups, Unreadable, folder_of, own_path, parse_paths
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.files import LOOKS, FileAsk, FileError

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">I")
_PIECE_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20
_WORDS_BYTES = 16 << 20
_LOGGED_BYTES = 2000
_CLEAN_SECONDS = 5.0  # for a worker whose input broke off to remove what it had begun
_ENDED = "the transfer was ended"


class DockerFiles:
    """The files of the containers of an engine on this host. Needs root: it becomes each box's user."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups, self._proc = cgroups, cgroups.proc
        self._lock = threading.Lock()
        self._open: set[Worker] = set()

    def begin(self, container: Container, ask: FileAsk) -> "Worker":
        """Start the operation in a container that runs (or is frozen, where it only looks). Raises FileError."""
        if container.state is State.PAUSED and ask.op not in LOOKS:
            raise FileError("NotRunning", "the sandbox is paused; set it to Running first to change its files")
        try:
            with self._entered(container) as (root, process, user):
                worker = Worker(root, process, self._forget)
        except OSError as error:
            raise FileError("Failed", f"the box's files can't be reached: {_in_words(error)}") from error
        with self._lock:
            self._open.add(worker)
        try:
            if ask.op not in LOOKS:
                self._charge(worker.pid, container)
            worker.send(marshal.dumps({**asdict(ask), **user}))
        except BaseException:
            worker.close()
            raise
        return worker

    def close(self) -> None:
        """End every operation."""
        with self._lock:
            left = list(self._open)
        for each in left:
            each.close()

    def _forget(self, worker: "Worker") -> None:
        with self._lock:
            self._open.discard(worker)

    @contextmanager
    def _entered(self, container: Container) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """The root and PID 1 of the box, held, and who its user is. Raises OSError, FileError."""
        own = self._proc / str(container.pid)
        with contextlib.ExitStack() as held:
            if container.pid <= 1:
                raise FileError("NotRunning", "the sandbox is not running; try again once it is Ready")
            process = os.pidfd_open(container.pid)
            held.callback(os.close, process)
            root = os.open(own / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, root)
            user = _user(own)
            # Asked once all is held: a pid that was given to another process meanwhile is found out.
            paths = parse_paths((own / "cgroup").read_text())
            if not any(own_path(each, container.id) for each in paths.values()):
                raise FileError("NotRunning", f"container {container.id[:12]} has ended; try again once it is Ready")
            host, here = os.stat(self._proc / "self" / "root"), os.stat(own / "root")
            if (host.st_dev, host.st_ino) == (here.st_dev, here.st_ino):
                raise FileError("Denied", "the box's root is the host's: its files are not served")
            yield root, process, user

    def _charge(self, pid: int, container: Container) -> None:
        """What the worker writes into a tmpfs is the box's memory, as if its own user had written it."""
        try:
            text = (self._proc / str(container.pid) / "cgroup").read_text()
            folder = folder_of(self._cgroups.folders(text, container.id), "memory")
            Path(folder.path, "cgroup.procs").write_text(str(pid))
        except (OSError, Unreadable) as error:
            raise FileError("Failed", f"the box's memory limit can't be kept for a write: {error}") from error


class Worker:
    """One operation under way: ports.FileWork. Its methods may block; `close`, from any thread, ends each of them."""

    def __init__(self, root: int, process: int, forget: Callable[["Worker"], None]) -> None:
        command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", files_worker.__file__, str(root), str(process)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, pass_fds=(root, process), env={}, cwd="/"
        )
        self.pid = self._process.pid
        self._in, self._out, self._words = self._pipes()
        # One for each descriptor, so that none is closed (and its number given away) while it is in use.
        self._using = (threading.Lock(), threading.Lock(), threading.Lock())
        self._forget = forget
        self._closing = threading.Lock()
        self._closed = False
        self._said = b""
        for each in (self._in, self._out):
            with contextlib.suppress(OSError):  # it would only be slower
                fcntl.fcntl(each, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        into, out, words = (each for each in streams if each is not None)
        return into, out, words

    def send(self, data: bytes) -> None:
        """A piece of input; waits while the worker is behind. Raises FileError if it has ended."""
        if data:
            self._send(_LENGTH.pack(len(data)), data)

    def end(self) -> None:
        """All input was sent."""
        self._send(_LENGTH.pack(0))

    def _send(self, *parts: bytes) -> None:
        try:
            with self._using[0]:
                for part in parts:
                    write_all(self._in.fileno(), part)
        except (OSError, ValueError):  # ValueError: it was closed
            self.result()
            raise FileError("CutOff", _ENDED) from None

    def receive(self) -> bytes:
        """A piece of output, b"" at its end. Whether that is all of it, `result` tells."""
        try:
            with self._using[1]:
                return os.read(self._out.fileno(), _PIECE_BYTES)
        except (OSError, ValueError):
            return b""

    def result(self) -> dict[str, Any]:
        """What the worker says next: of the data that it sends, before them; else, and then again, once it is done.

        Raises FileError.
        """
        line = self._line()
        if not line:
            raise FileError(*self._silent())
        try:
            words: dict[str, Any] = json.loads(line)
        except ValueError:
            log.error("a worker of a box's files failed: %s", line[:_LOGGED_BYTES].decode(errors="replace"))
            raise FileError("Failed", "Paddock failed on this; the daemon's log says why") from None
        if "error" in words:
            raise FileError(words["error"], words["message"])
        found: dict[str, Any] = words["done"] if "done" in words else words["head"]
        return found

    def close(self) -> None:
        """End it, whatever it does; what was half written is removed. May be called from any thread, and again."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._process.terminate()
            if self._ended(_CLEAN_SECONDS) is None:
                self._process.kill()
            self._process.wait()
            # Whoever waited for it in another thread is let go by its end.
            for lock, stream in zip(self._using, (self._in, self._out, self._words), strict=True):
                with lock, contextlib.suppress(OSError):
                    stream.close()
        self._forget(self)

    def _line(self) -> bytes:
        """The next line of words; what is left of them at their end. Empty: it says nothing more."""
        with self._using[2]:
            try:
                while b"\n" not in self._said and len(self._said) < _WORDS_BYTES:
                    piece = os.read(self._words.fileno(), _PIECE_BYTES)
                    if not piece:
                        break
                    self._said += piece
            except (OSError, ValueError):
                return b""
            line, _, self._said = self._said.partition(b"\n")
            return line

    def _silent(self) -> tuple[str, str]:
        """Why it ended without a word."""
        code = self._ended(_CLEAN_SECONDS)
        if code == files_worker.BOX_ENDED:
            return "NotRunning", "the sandbox ended meanwhile; try again once it is Ready"
        if code == -signal.SIGKILL and not self._closed:
            return "NoSpace", "the box's memory limit is reached (what is in a tmpfs counts); raise it, or remove files"
        return "CutOff", _ENDED

    def _ended(self, seconds: float) -> int | None:
        """Its exit code, once it has one within so long. (Popen's own wait looks every 50 ms.)"""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):  # somebody waited for it meanwhile
                child = os.pidfd_open(self.pid)
                try:
                    poll = select.poll()
                    poll.register(child, select.POLLIN)
                    poll.poll(seconds * 1000)
                finally:
                    os.close(child)
        return self._process.poll()


def _user(own: Path) -> dict[str, Any]:
    """Who PID 1 is: what every process of the box can be, unless its image raises somebody."""
    fields = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines() if ":" in line)
    groups = [int(each) for each in fields["Groups"].split()]
    return {"uid": int(fields["Uid"].split()[1]), "gid": int(fields["Gid"].split()[1]), "groups": groups}


def _in_words(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "that needs root: run the daemon as root"
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return "it has ended; try again once the sandbox is Ready"
    return (error.strerror or str(error)).lower()
