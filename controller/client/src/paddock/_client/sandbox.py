"""Client of one sandbox.

Modules for commands are imported on first use: the import takes longer than a small copy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paddock._client import detached
from paddock._client.connection import Connection, segment
from paddock._client.detached import DetachedExec
from paddock._client.files import Files
from paddock._client.port_forward import Forwarding, PortConnection

if TYPE_CHECKING:
    from paddock._client.exec import Completed, Running


class Sandbox:
    """Handle of a sandbox by name; each method sends requests and may raise a ClientError."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self.connection, self.namespace, self.name = connection, namespace, name

    @property
    def path(self) -> str:
        """Path in the API, relative to its version."""
        return f"namespaces/{segment(self.namespace)}/sandboxes/{segment(self.name)}"

    @property
    def files(self) -> Files:
        """Files of the sandbox."""
        return Files(self.connection.server, self.path)

    def connect(self, port: int) -> PortConnection:
        """Connect to a TCP port on the sandbox's 127.0.0.1, with or without a network."""
        return PortConnection(self.connection.server, self.path, port)

    def forward(
        self,
        remote: int,
        *,
        local: int = 0,
        address: str = "127.0.0.1",
        failed: Callable[[str], None] = lambda _message: None,
        host: str = "",
    ) -> Forwarding:
        """Listen locally and relay each connection to the remote port until closed. `local` 0: a free port.

        `host`: relay only HTTP requests to that name. `failed` is called, from any thread, with a message for each
        connection that failed.
        """
        return Forwarding(self.connect, remote, local=local, address=address, failed=failed, host=host)

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
        size: tuple[int, int] | None = None,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> "Running":
        """Start a command and stream its output. A sandbox suspended for idleness is resumed first.

        `command` is the program and its arguments; for a shell write `["sh", "-c", LINE]`. TypeError for a string.

        After `timeout_seconds` the command is killed with exit code 124. Without it the daemon's limit holds, except
        for a terminal (`tty`); 0 is none. `size` are the terminal's rows and columns at its start.
        """
        from paddock._client import exec as exec_

        return exec_.start(
            self.connection,
            self.path,
            command,
            stdin=stdin,
            tty=tty,
            size=size,
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
        """Run a command to its end and return its output. `command` and `timeout_seconds` as for `start`.

        For more than a few MiB of input or output use `start`.
        """
        from paddock._client import exec as exec_

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
        """Start a command in the background; without `timeout_seconds` the daemon's limit holds.

        `command` as for `start`.

        It ends with its sandbox. It survives a restart of the daemon, but its later output is not kept.
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
        """Return the container as the engine reports it, and Paddock's record of it."""
        inspection: Mapping[str, Any] = self.connection.get(f"{self.path}/inspect")
        return inspection

    def execs(self) -> Sequence[DetachedExec]:
        """List the detached commands, oldest first."""
        return detached.every(self.connection, self.path)

    def exec_log(self, id_: str) -> bytes:
        """Return the output of a detached command so far; long output is cut to head and tail."""
        return detached.log(self.connection, self.path, id_)

    def kill_exec(self, id_: str) -> DetachedExec:
        """Kill all processes of a detached command. Its log is kept."""
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
        """Stream the log of the main process in chunks; `tail` is a number of lines.

        `previous`: of the previous run. `warn` is called if only the last lines were kept. `egress`: the egress log
        instead.
        """
        options = {
            "follow": "true" if follow else "",
            "tailLines": "" if tail is None else str(tail),
            "sinceSeconds": "" if since_seconds is None else f"{since_seconds:g}",
            "timestamps": "true" if timestamps else "",
            "previous": "true" if previous else "",
            "egress": "true" if egress else "",
        }
        parameters = {key: value for key, value in options.items() if value}
        with self.connection.stream(f"{self.path}/logs", parameters, warn=warn) as pieces:
            yield pieces
