"""One sandbox from a program's side."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from controller.client import exec as exec_
from controller.client.connection import Connection, segment
from controller.client.exec import PIECE_BYTES, Completed, Running


class Sandbox:
    """A sandbox by its name; nothing is asked until a method is called. Every method may raise a ClientError."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self.connection, self.namespace, self.name = connection, namespace, name

    @property
    def path(self) -> str:
        """Where the API has it, below its version."""
        return f"namespaces/{segment(self.namespace)}/sandboxes/{segment(self.name)}"

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: bool = False,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> Running:
        """Start a command, to read its output as it comes. One that idleness suspended is woken for it.

        Past `timeout_seconds` the command is killed, and its exit code is 124.
        """
        return exec_.start(
            self.connection,
            self.path,
            command,
            stdin=stdin,
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
    ) -> Completed:
        """Run a command to its end, and gather what it wrote."""
        gathered: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        options = {"env": env, "working_dir": working_dir, "timeout_seconds": timeout_seconds}
        with self.start(command, stdin=bool(stdin), **options) as running:  # type: ignore[arg-type]
            pieces = (stdin[at : at + PIECE_BYTES] for at in range(0, len(stdin), PIECE_BYTES))
            if stdin:
                threading.Thread(target=running.feed, args=(pieces,), name="stdin", daemon=True).start()
            for each in running:
                gathered[each.stream].append(each.data)
        assert running.exit_code is not None  # the iteration has ended
        return Completed(running.exit_code, b"".join(gathered["stdout"]), b"".join(gathered["stderr"]))

    @contextmanager
    def logs(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        since_seconds: float | None = None,
        timestamps: bool = False,
    ) -> Iterator[Iterator[bytes]]:
        """What its first process has written, in pieces as they come; `tail` is a number of lines."""
        wanted = {
            "follow": "true" if follow else "",
            "tailLines": "" if tail is None else str(tail),
            "sinceSeconds": "" if since_seconds is None else f"{since_seconds:g}",
            "timestamps": "true" if timestamps else "",
        }
        given = {key: value for key, value in wanted.items() if value}
        with self.connection.stream(f"{self.path}/logs", given) as pieces:
            yield pieces
