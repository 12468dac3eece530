"""This process's terminal while another one is shown in it: raw, and always put back as it was."""

import atexit
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator

_DEATHS = (signal.SIGTERM, signal.SIGHUP)  # INT and QUIT are keys, which a raw terminal passes on


def is_terminal() -> bool:
    """Whether a person types into this command."""
    return sys.stdin.isatty()


def size() -> tuple[int, int]:
    """Rows and columns."""
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    return rows, columns


@contextlib.contextmanager
def raw(resized: Callable[[], None]) -> Iterator[None]:
    """Every key goes through as it is. `resized` is called, on the main thread, when the terminal's size changes.

    What ends this process, short of SIGKILL, puts the terminal back first.
    """
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)

    def restore() -> None:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(handle, termios.TCSADRAIN, before)

    def die(number: int, _frame: object) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    free = [each for each in _DEATHS if signal.getsignal(each) == signal.SIG_DFL]  # others end by way of our `finally`
    earlier = {number: signal.signal(number, die) for number in free}
    earlier[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: resized())
    atexit.register(restore)
    try:
        tty.setraw(handle, termios.TCSADRAIN)  # what was typed ahead is for the command
        yield
    finally:
        restore()
        atexit.unregister(restore)
        for number, handler in earlier.items():
            signal.signal(number, handler)
