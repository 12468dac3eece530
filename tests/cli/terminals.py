"""A command on a terminal of its own, as a person has it."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl

from tests.helpers_api import ApiStack

_SECONDS = 60
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """The terminal's screen as a stream of text; `styled` is what was written, with its styles."""

    def __init__(self, handle: int, process: "subprocess.Popen[bytes]") -> None:
        self._handle, self._process = handle, process
        self._data = b""

    @property
    def styled(self) -> str:
        return self._data.decode(errors="replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        return _STYLE.sub("", self.styled)

    def until(self, text: str, times: int = 1) -> str:
        """Wait for a text; return all that was shown."""
        while self.text.count(text) < times:
            assert self._read(), f"no {text!r} in {self.styled!r}"
        return self.text

    def type(self, keys: str) -> None:
        os.write(self._handle, keys.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Wait for the end of the command, with all that it writes."""
        while self._read():
            pass
        return self._process.wait(_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._handle], [], [], _SECONDS)
        data = b""
        with suppress(OSError):  # EIO: the other side has closed
            data = os.read(self._handle, 1 << 16) if ready else b""
        self._data += data
        return bool(data)


@contextmanager
def on_terminal(served: ApiStack, *words: str, **environment: str) -> Iterator[Screen]:
    """Run `paddock ...` against the served API on a terminal of 40 rows and 160 columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    command = [sys.executable, "-m", "controller", "--server", f"unix://{served.socket}", *words]
    kept = {key: each for key, each in os.environ.items() if key not in ("NO_COLOR", "TERM", "COLUMNS", "LINES")}
    env = {**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        try:
            yield Screen(ours, process)
        finally:
            process.kill()
            os.close(ours)
