"""Processes forked off one that has imported everything: a fork instead of a new interpreter.

A test run starts hundreds of commands, daemons and writers to one store; as new interpreters, importing alone would be
most of what they do. How the command comes up from nothing is tests/cli/test_startup.py's; the daemon, tests/deploy's.
"""

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

_CLONE_NEWNET = 0x40000000
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "tests.contract.store_process", "tests.forks_imports"])


def run_paddock(
    arguments: Sequence[str], *, environment: Mapping[str, str], cwd: Path, stdin: str | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run `paddock ARGUMENTS` as its own process; raises TimeoutExpired after `seconds`."""
    sent = (stdin or "").encode()
    done = run_paddock_bytes(arguments, environment=environment, cwd=cwd, stdin=sent, seconds=seconds)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_paddock_bytes(
    arguments: Sequence[str], *, environment: Mapping[str, str], cwd: Path, stdin: bytes, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run `paddock ARGUMENTS` as its own process; raises TimeoutExpired after `seconds`."""
    with tempfile.TemporaryDirectory(prefix="pdk-") as temporary_directory:
        files = [Path(temporary_directory) / entry for entry in ("stdin", "stdout", "stderr")]
        files[0].write_bytes(stdin)
        process = FORKS.Process(target=_paddock, args=(list(arguments), dict(environment), cwd, files), daemon=True)
        process.start()
        process.join(seconds)
        late = process.exitcode is None
        if late:
            process.kill()
            process.join()
        code = process.exitcode
        process.close()
        out, err = (file.read_bytes() if file.exists() else b"" for file in files[1:])
    if late:
        raise subprocess.TimeoutExpired(["paddock", *arguments], seconds, out, err)
    assert code is not None
    return subprocess.CompletedProcess(["paddock", *arguments], code, out, err)


def start_paddock(
    arguments: Sequence[str], *, environment: Mapping[str, str], cwd: Path, stdin: str | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run `paddock ARGUMENTS` as users do, by a new interpreter; raises TimeoutExpired after `seconds`."""
    return subprocess.run(
        [sys.executable, "-m", "controller", *arguments],
        cwd=cwd,
        env=dict(environment),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def enter_network(pid: int) -> None:
    """Move this thread, and those that it starts, into the network namespace of that process."""
    with open(f"/proc/{pid}/ns/net") as network:
        entered = ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _CLONE_NEWNET)
    assert entered == 0, os.strerror(ctypes.get_errno())


class ForkedPaddock:
    """`paddock ARGUMENTS` as its own process, which goes on: to be asked and told what a subprocess.Popen is."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        network_of: int | None = None,
        periods: Mapping[str, float] | None = None,
    ) -> None:
        """`network_of`: the process in whose network namespace it runs, if not in ours.

        `periods`: other seconds between two runs of background work, by job id (controller/loop/reconcile_loop.py).
        """
        self._lock = threading.Lock()  # its exit code can be read only once
        ours, connection = FORKS.Pipe(duplex=False)
        with connection:
            self._process = FORKS.Process(
                target=_lasting_paddock,
                args=(list(arguments), dict(environment), cwd, connection, network_of, dict(periods or {})),
                daemon=True,
            )
            self._process.start()
        with ours:
            self.stderr: IO[str] = open(os.dup(ours.fileno()))  # noqa: SIM115 - its reader closes it
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        with self._lock:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("paddock", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _lasting_paddock(
    arguments: list[str],
    environment: dict[str, str],
    cwd: Path,
    stderr: Connection,
    network_of: int | None,
    periods: dict[str, float],
) -> None:
    if periods:
        _set_periods(periods)
    os.dup2(stderr.fileno(), 2)
    stderr.close()
    if network_of is not None:
        enter_network(network_of)
    _become(arguments, environment, cwd)


def _set_periods(periods: dict[str, float]) -> None:
    """Have this process run background work so often: what a test waits for need not take half a minute."""
    from controller.loop.schedule import Schedule

    every = Schedule.every

    def every_period(
        self: Schedule, job_id: str, seconds: float, jitter_seconds: float, mark: Callable[[], None]
    ) -> None:
        period = periods.get(job_id, seconds)
        every(self, job_id, period, jitter_seconds * period / seconds, mark)

    Schedule.every = every_period


def _paddock(arguments: list[str], environment: dict[str, str], cwd: Path, files: list[Path]) -> None:
    """Become the command: its files, environment, folder and words."""
    for number, path in enumerate(files):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    _become(arguments, environment, cwd)


def _become(arguments: list[str], environment: dict[str, str], cwd: Path) -> None:
    """Run the command, with the files 0, 1 and 2 as its own."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - they are the process's
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["paddock", *arguments]
    from controller.__main__ import main

    main()
