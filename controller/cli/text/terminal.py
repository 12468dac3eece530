"""Raw mode of this process's terminal, always restored."""

import atexit
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator

_FATAL_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # INT and QUIT are keys in raw mode


def is_terminal() -> bool:
    """Tell if stdin is a terminal."""
    return sys.stdin.isatty()


def size() -> tuple[int, int]:
    """Return rows and columns."""
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    return rows, columns


@contextlib.contextmanager
def raw(resized: Callable[[], None]) -> Iterator[None]:
    """Switch the terminal to raw mode. `resized` is called, on the main thread, when its size changes.

    The terminal is restored first whatever ends this process, except SIGKILL.
    """
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)

    def restore() -> None:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(handle, termios.TCSADRAIN, before)

    def die(number: int, _frame: object) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    free = [
        signal_number for signal_number in _FATAL_SIGNALS if signal.getsignal(signal_number) == signal.SIG_DFL
    ]  # others end by way of our `finally`
    earlier = {number: signal.signal(number, die) for number in free}
    earlier[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: resized())
    atexit.register(restore)
    try:
        tty.setraw(handle, termios.TCSADRAIN)  # keys typed ahead go to the command
        yield
    finally:
        restore()
        atexit.unregister(restore)
        for number, handler in earlier.items():
            signal.signal(number, handler)
