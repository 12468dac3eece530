"""One sandbox from a program's side.

What commands need is imported with the first of them: it takes longer than a small copy does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from controller.client import detached
from controller.client.connection import Connection, segment
from controller.client.detached import DetachedExec
from controller.client.files import Files
from controller.client.port_forward import Forwarding, PortConnection

if TYPE_CHECKING:
    from controller.client.exec import Completed, Running


class Sandbox:
    """A sandbox by its name; nothing is asked until a method is called. Every method may raise a ClientError."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self.connection, self.namespace, self.name = connection, namespace, name

    @property
    def path(self) -> str:
        """Where the API has it, below its version."""
        return f"namespaces/{segment(self.namespace)}/sandboxes/{segment(self.name)}"

    @property
    def files(self) -> Files:
        """Its files."""
        return Files(self.connection.server, self.path)

    def connect(self, port: int) -> PortConnection:
        """A connection to a TCP port on its own 127.0.0.1, with or without a network."""
        return PortConnection(self.connection.server, self.path, port)

    def forward(
        self,
        remote: int,
        *,
        local: int = 0,
        address: str = "127.0.0.1",
        failed: Callable[[str], None] = lambda _words: None,
    ) -> Forwarding:
        """Listen here, and carry each connection to that port of it, until closed. 0: a free port, see its `port`.

        `failed` is told, from any thread, why a connection could not be made.
        """
        return Forwarding(self.connect, remote, local, address, failed)

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> "Running":
        """Start a command, to read its output as it comes. A box that idleness suspended is woken for it.

        `command` is the program and its arguments; a shell's line is `["sh", "-c", LINE]`. TypeError for a string.

        Past `timeout_seconds` the command is killed, and its exit code is 124; without it the daemon's own limit
        holds, but for a terminal (`tty`); 0 is none.
        """
        from controller.client import exec as exec_

        return exec_.start(
            self.connection,
            self.path,
            command,
            stdin=stdin,
            tty=tty,
            env=env,
            working_dir=working_dir,
            timeout_seconds=timeout_seconds,
        )

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> "Completed":
        """Run a command to its end, and gather what it wrote. `command` and `timeout_seconds` as for `start`.

        For more than a few MiB of input or output use `start`.
        """
        from controller.client import exec as exec_

        return exec_.run(
            self.connection,
            self.path,
            command,
            stdin=stdin,
            env=env,
            working_dir=working_dir,
            timeout_seconds=timeout_seconds,
        )

    def detach(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> DetachedExec:
        """Start a command that goes on without this program; without `timeout_seconds` the daemon's own limit holds.

        `command` as for `start`.

        It ends with its box. It outlives a daemon that restarts: only what it writes from then on is not kept.
        """
        return detached.start(
            self.connection,
            self.path,
            command,
            env=env,
            working_dir=working_dir,
            timeout_seconds=timeout_seconds,
        )

    def inspect(self) -> Mapping[str, Any]:
        """Its container in the engine's own words, and the record of it, as the API has them."""
        found: Mapping[str, Any] = self.connection.get(f"{self.path}/inspect")
        return found

    def execs(self) -> Sequence[DetachedExec]:
        """The detached commands that are known, oldest first."""
        return detached.every(self.connection, self.path)

    def exec_log(self, id_: str) -> bytes:
        """What a detached command has written so far; of much the head and the tail."""
        return detached.log(self.connection, self.path, id_)

    def kill_exec(self, id_: str) -> DetachedExec:
        """Kill all processes of a detached command. Its log can still be read."""
        return detached.kill(self.connection, self.path, id_)

    @contextmanager
    def logs(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        since_seconds: float | None = None,
        timestamps: bool = False,
        previous: bool = False,
        egress: bool = False,
        warn: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Iterator[bytes]]:
        """What its first process has written, in pieces as they come; `tail` is a number of lines.

        `previous`: in the run that ended last. `warn` is called where only its last lines were kept. `egress`: instead,
        what its proxy let through and refused.
        """
        wanted = {
            "follow": "true" if follow else "",
            "tailLines": "" if tail is None else str(tail),
            "sinceSeconds": "" if since_seconds is None else f"{since_seconds:g}",
            "timestamps": "true" if timestamps else "",
            "previous": "true" if previous else "",
            "egress": "true" if egress else "",
        }
        given = {key: value for key, value in wanted.items() if value}
        with self.connection.stream(f"{self.path}/logs", given, warn=warn) as pieces:
            yield pieces
