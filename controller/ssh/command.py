"""A command of an SSH session: its shell, its environment, and its streams in the daemon."""

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from controller.kinds.common.chunk import Chunk
from controller.ports import ExecStream, StreamError
from controller.ssh.frames import EXIT, FAILED, HEAD, STDERR, STDOUT

_PIECE_BYTES = 1 << 16
_KINDS = {"stdout": STDOUT, "stderr": STDERR}
_PASSED = frozenset(("LANG", "LANGUAGE", "TERM", "COLORTERM", "GIT_PROTOCOL", "TZ", "EDITOR"))
_LOCALE = re.compile(r"LC_[A-Z]{1,20}")
_MOST_LETTERS, _MOST_VARIABLES = 1024, 64
_OLD_SCP = re.compile(r"scp( -[a-zA-Z]+)* -[tf]( |\Z)")
_SHELLS = re.compile(r"(.*/)?(ba|da|a|z|k)?sh")
_NO_SCP = (
    "command -v scp >/dev/null || { echo 'paddock: the image has no scp; run scp without -O, which copies by SFTP,"
    " or use paddock/ide:1' >&2; exit 127; }; "
)


def passed_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a client that reach the sandbox: none that could change how programs are loaded."""
    passed = (
        (name, value)
        for name, value in variables.items()
        if (name in _PASSED or _LOCALE.fullmatch(name)) and "\0" not in value and len(value) <= _MOST_LETTERS
    )
    return dict(islice(passed, _MOST_VARIABLES))


def command_line(shell: str, command: str | None) -> list[str]:
    """Return the shell's arguments for a client's command; None: a login shell. A command is one string for it.

    `scp -O` runs a program of the image: where there is none, it says so.
    """
    if command is None:
        return [shell, "-l"]
    is_old_scp = _OLD_SCP.match(command) and _SHELLS.fullmatch(shell)
    return [shell, "-c", (_NO_SCP if is_old_scp else "") + command]


class FewVariables(dict[bytes, bytes]):
    """Variables of a client, while they arrive: only those that are passed on, of which there are few."""

    def __setitem__(self, name: bytes, value: bytes) -> None:
        text, content = name.decode("utf-8", "replace"), value.decode("utf-8", "replace")
        if len(self) < _MOST_VARIABLES and passed_environment({text: content}):
            super().__setitem__(name, value)


class CommandStreams:
    """The daemon's end of a command: a socket whose other end the SSH process has.

    Input arrives as it is, and ends with the socket's. Output leaves in frames.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def input(self) -> Iterator[bytes]:
        """Yield the input until it ends."""
        with suppress(OSError):
            while data := self._sock.recv(_PIECE_BYTES):
                yield data

    def relay(self, stream: ExecStream) -> None:
        """Send all output, and how the command ended. Blocks while the client reads nothing. Closes the stream."""
        try:
            for chunk in stream:
                self._send_chunk(chunk)
        except StreamError as error:
            self.fail(str(error))
        except OSError:  # the SSH process has closed its end
            pass
        finally:
            stream.close()

    def drain(self) -> None:
        """Read until the SSH process has closed its end: what it still writes must not break what it still reads."""
        for _ in self.input():
            pass

    def fail(self, message: str) -> None:
        """Send the reason why there is no end to report."""
        self._frame(FAILED, message.encode("utf-8", "replace"))

    def close(self) -> None:
        """End both directions, from any thread: a blocked call returns."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _send_chunk(self, chunk: Chunk) -> None:
        if chunk.stream in _KINDS:
            self._sock.sendall(HEAD.pack(_KINDS[chunk.stream], len(chunk.data)))
            self._sock.sendall(chunk.data)
        elif chunk.stream == "exit":
            self._sock.sendall(HEAD.pack(EXIT, len(chunk.data)) + chunk.data)

    def _frame(self, kind: int, data: bytes) -> None:
        with suppress(OSError):
            self._sock.sendall(HEAD.pack(kind, len(data)) + data)


def refusal_text(error: Exception) -> str:
    """Return an error as one line."""
    return " ".join(str(error).split())
