"""Workers of file operations, forked by fork_server.py. The server is started by the first of them."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

from controller.engine.files import fork_server
from controller.engine.files.fork_server import NUMBER

_STOP_SECONDS = 5.0


class Child:
    """A forked worker, and our ends of its streams. Any thread may use it."""

    def __init__(self, pid: int, handle: int, report: int, streams: tuple[int, int, int]) -> None:
        self.pid, self._handle, self._report = pid, handle, report
        self._lock = threading.Lock()
        self._code: int | None = None
        into, out, results = streams
        self.streams: tuple[IO[bytes], IO[bytes], IO[bytes]] = (
            os.fdopen(into, "wb", 0),
            os.fdopen(out, "rb", 0),
            os.fdopen(results, "rb", 0),
        )

    def terminate(self) -> None:
        """Send it SIGTERM, unless it has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL, unless it has ended."""
        self._signal(signal.SIGKILL)

    def wait_for_exit(self, seconds: float | None) -> int | None:
        """Wait for its exit code for so many seconds (None: without end); None if it still runs.

        It is that of a cancelled one if nobody could report it.
        """
        with self._lock:
            if self._code is not None:
                return self._code
            report = os.dup(self._report)
        try:
            poll = select.poll()
            poll.register(report, select.POLLIN)
            if not poll.poll(None if seconds is None else seconds * 1000):
                return None
        finally:
            os.close(report)
        with self._lock:
            if self._code is None:
                data = os.read(self._report, NUMBER.size)
                if not data:  # the server was killed: its workers must not go on unseen
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(self._handle, signal.SIGKILL)
                self._code = NUMBER.unpack(data)[0] if data else -signal.SIGTERM
                os.close(self._report)
                os.close(self._handle)
            return self._code

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._code is None:
                signal.pidfd_send_signal(self._handle, number)


class ForkServer:
    """The server, as the daemon sees it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self, root: int, process: int) -> Child:
        """Fork a worker for the sandbox with this root and first process. Raises OSError."""
        ours: list[int] = []
        worker_ends: list[int] = []
        try:
            for outgoing in (True, False, False, False):  # its input, output, results and exit code
                read, write = os.pipe2(os.O_CLOEXEC)
                ours.append(write if outgoing else read)
                worker_ends.append(read if outgoing else write)
            pid, handle = self._request_worker([root, process, *worker_ends])
        except BaseException:
            for end in ours:
                os.close(end)
            raise
        finally:
            for end in worker_ends:
                os.close(end)
        return Child(pid, handle, ours[3], (ours[0], ours[1], ours[2]))

    def close(self) -> None:
        """End it, and wait. Its workers go on until they are closed."""
        with self._lock:
            self._stop()

    def _request_worker(self, descriptors: list[int]) -> tuple[int, int]:
        with self._lock:
            for last in (False, True):
                control = self._control or self._start()
                try:
                    socket.send_fds(control, [b"w"], descriptors)
                    answer, handles, _, _ = socket.recv_fds(control, NUMBER.size, 1)
                    if answer:
                        break
                except OSError:
                    if last:
                        raise
                self._stop()  # it was killed: another one is started
            else:
                raise BrokenPipeError("the server of file workers has ended")
        number = int(NUMBER.unpack(answer)[0])
        if number < 0 or not handles:
            raise OSError(-number, os.strerror(-number))
        return number, handles[0]

    def _start(self) -> socket.socket:
        ours, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end:
            command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", fork_server.__file__]
            none = subprocess.DEVNULL
            try:
                self._process = subprocess.Popen(
                    command, stdin=server_end.fileno(), stdout=none, stderr=none, env={}, cwd="/"
                )
            except BaseException:
                ours.close()
                raise
        self._control = ours
        return ours

    def _stop(self) -> None:
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            control.close()
        if process is not None:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
