"""Relay between this process's streams, terminal and signals and those of a command in a sandbox."""

import contextlib
import io
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from controller.cli.client import sandbox_handle
from controller.cli.errors import INTERRUPTED, CliError, UsageProblem
from controller.cli.options import located
from controller.cli.text.output import note, say
from controller.cli.text.progress import waiting_for
from controller.cli.text.terminal import is_terminal, raw, size
from controller.cli.text.terminal_filter import Output
from paddock._client.channels import PIECE_BYTES

if TYPE_CHECKING:
    from paddock._sync.process import Process

_FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED_INTERRUPTS = 3  # Ctrl-C is forwarded so often; the next one ends this process and kills the command


def relay_streams(process: "Process", *, with_stdin: bool, tty: bool = False, raw_output: bool = False) -> int:
    """Relay the streams until the command ends; return its exit code. `raw_output`: no escape sequence is filtered."""
    with (
        _SignalThread() as later,
        _terminal(process, later) if tty else _signals(process, later),
        Output(sys.stdout.buffer, raw=raw_output, screen=tty) as stdout,
        Output(sys.stderr.buffer, raw=raw_output, screen=tty) as stderr,
    ):
        stdin = _Stdin(process)
        if with_stdin:
            stdin.start()
        streams = {"stdout": stdout, "stderr": stderr}
        for chunk in process:
            streams[chunk.stream].write(chunk.data)
    if (error := stdin.error) is not None:
        reason = getattr(error, "strerror", None) or str(error)
        raise CliError(f"stdin can't be read: {reason}; the command was killed, start it with another input") from error
    assert process.exit_code is not None  # the iteration has ended
    if process.timed_out:
        note("error: command timed out and was killed; set another limit with --timeout, or 0 for none")
    return process.exit_code


class _SignalThread:
    """Runs calls on its own thread: a signal handler must not wait for the code it interrupted."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()

    def __enter__(self) -> Callable[[Callable[[], Any]], None]:
        threading.Thread(target=self._run, name="signals", daemon=True).start()
        return self._queue.put

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        while (do := self._queue.get()) is not None:
            do()


@contextlib.contextmanager
def _terminal(process: "Process", later: Callable[[Callable[[], Any]], None]) -> Iterator[None]:
    def resized() -> None:
        later(lambda: process.resize(*size()))

    with raw(resized):
        resized()
        yield


@contextlib.contextmanager
def _signals(process: "Process", later: Callable[[Callable[[], Any]], None]) -> Iterator[None]:
    """Forward signals to the command, except those that this process handles itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = 0

    def handle(number: int, _frame: object) -> None:
        nonlocal pressed
        pressed += number == signal.SIGINT
        if pressed > _FORWARDED_INTERRUPTS:
            raise KeyboardInterrupt
        later(lambda: process.signal(signal.Signals(number).name.removeprefix("SIG")))

    mine = [
        signal_number
        for signal_number in _FORWARDED_SIGNALS
        if signal.getsignal(signal_number) in (signal.SIG_DFL, signal.default_int_handler)
    ]
    earlier = {number: signal.signal(number, handle) for number in mine}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


class _Stdin:
    """This process's stdin, relayed to a command. If it can't be read, the command is killed.

    Partial input must not look complete. `error` says then why.
    """

    def __init__(self, process: "Process") -> None:
        self._process = process
        self.error: Exception | None = None

    def start(self) -> None:
        """Relay it on a thread of its own, which ends early when the command has ended."""
        threading.Thread(target=self._relay, name="stdin", daemon=True).start()

    def _relay(self) -> None:
        try:
            if all(self._process.write(piece) for piece in _pieces()):
                self._process.close_stdin()
        except Exception as error:
            self.error = error  # before the kill: who reads the output looks for it at the end
            self._process.kill()


def _pieces() -> Iterator[bytes]:
    """Read stdin by its file descriptor: a buffered reader stays locked when the process ends meanwhile."""
    try:
        handle = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):  # not a file: a test's, or a program's that uses this module
        yield from iter(lambda: sys.stdin.buffer.read(PIECE_BYTES), b"")
        return
    while data := os.read(handle, PIECE_BYTES):
        yield data


def exec_attached(
    ctx: click.Context,
    namespace: str,
    name: str,
    command: Sequence[str],
    *,
    with_stdin: bool,
    tty: bool,
    env: Mapping[str, str],
    working_dir: str = "",
    timeout: float | None = None,
    raw_output: bool = False,
) -> int:
    """Run a command in a sandbox with this process's streams; return its exit code."""
    if tty and not is_terminal():
        raise UsageProblem("stdin is not a terminal; leave -t out, or run this in a terminal")
    sandbox = sandbox_handle(ctx, located(ctx), namespace, name)
    options: dict[str, Any] = {"env": env, "cwd": working_dir, "timeout": timeout}
    options |= {"size": size()} if tty else {}
    with sandbox.start(list(command), stdin=with_stdin, tty=tty, **options) as process:
        try:
            with waiting_for(f"sandbox/{name}"):
                process.wait_started()
            return relay_streams(process, with_stdin=with_stdin, tty=tty, raw_output=raw_output)
        except KeyboardInterrupt:
            return INTERRUPTED


def exec_detached(
    ctx: click.Context,
    namespace: str,
    name: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    working_dir: str = "",
    timeout: float | None = None,
) -> None:
    """Start a detached command and print its ID."""
    sandbox = sandbox_handle(ctx, located(ctx), namespace, name)
    with waiting_for(f"sandbox/{name}"):
        background = sandbox.background(list(command), env=env, cwd=working_dir, timeout=timeout)
    say(background.id)
