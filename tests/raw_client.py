"""Client of tests, over the SDK's modules: objects are dictionaries as the API has them, and output is bytes."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from controller.cli.calls.logs import opened_log
from controller.cli.client import sandbox_path
from paddock import Process
from paddock import Sandbox as Handle
from paddock._client.command import as_json, checked_command
from paddock._client.connection import Connection, connect, segment
from paddock._client.files import Files
from paddock._client.port_forward import Forwarding, PortConnection, open_port
from paddock._transport.blocking import Transport


@dataclass(frozen=True, slots=True)
class Completed:
    """Result of a command."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_seconds: float
    truncated: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class DetachedExec:
    """State of a command in the background."""

    id: str
    command: Sequence[str]
    state: str
    finished_time: str
    exit_code: int | None
    message: str
    omitted_bytes: int


class Sandbox:
    """Handle of a sandbox by name."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self.connection, self.namespace, self.name = connection, namespace, name
        self.path = sandbox_path(namespace, name)
        self._handle = Handle(Transport(connection.server), namespace, name)

    @property
    def files(self) -> Files:
        """Files of the sandbox."""
        return Files(self.connection.server, self.path)

    def connect(self, port: int) -> PortConnection:
        """Connect to a port of the sandbox."""
        return open_port(self.connection.server, self.path, port)

    def forward(self, remote: int, **options: Any) -> Forwarding:
        """Relay each connection to a local port to the remote one."""
        return Forwarding(partial(open_port, self.connection.server, self.path), remote, **options)

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
        **options: Any,
    ) -> Process:
        """Start a command and stream its output."""
        return self._handle.start(command, env=env, cwd=working_dir, timeout=timeout_seconds, **options)

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> Completed:
        """Run a command to its end."""
        request = {
            "command": checked_command(command, "exec"),
            "env": as_json(env),
            "workingDir": working_dir,
            "stdin": base64.b64encode(stdin).decode(),
            "encoding": "base64",
            "timeoutSeconds": timeout_seconds,
        }
        done = self.connection.request("POST", f"{self.path}/exec", json=request)
        return Completed(
            exit_code=done["exitCode"],
            stdout=base64.b64decode(done["stdout"]),
            stderr=base64.b64decode(done["stderr"]),
            duration_seconds=done["durationSeconds"],
            truncated=done["truncated"],
            timed_out=done["timedOut"],
        )

    def detach(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> DetachedExec:
        """Start a command in the background."""
        request = {
            "command": checked_command(command, "detach"),
            "env": as_json(env),
            "workingDir": working_dir,
            "timeoutSeconds": timeout_seconds,
        }
        return _detached(self.connection.request("POST", f"{self.path}/execs", json=request))

    def execs(self) -> Sequence[DetachedExec]:
        """List the commands in the background, oldest first."""
        return [_detached(entry) for entry in self.connection.get(f"{self.path}/execs")["items"]]

    def exec_log(self, id_: str) -> bytes:
        """Return the output of such a command so far."""
        with self.connection.stream(f"{self.path}/execs/{segment(id_)}/log", {}) as pieces:
            return b"".join(pieces)

    def kill_exec(self, id_: str) -> DetachedExec:
        """Kill such a command."""
        return _detached(self.connection.request("POST", f"{self.path}/execs/{segment(id_)}/kill"))

    def logs(
        self, *, follow: bool = False, tail: int | None = None, warn: Callable[[str], None] = lambda _: None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Stream the log of the main process."""
        return opened_log(self.connection, self.path, follow=follow, tail=tail, warn=warn)


def _detached(entry: Mapping[str, Any]) -> DetachedExec:
    return DetachedExec(
        id=entry["id"],
        command=tuple(entry["command"]),
        state=entry["state"],
        finished_time=entry.get("finishedTime", ""),
        exit_code=entry.get("exitCode"),
        message=entry.get("message", ""),
        omitted_bytes=entry.get("omittedBytes", 0),
    )


class Paddock:
    """Client of the daemon at `server` (unix:///path or http://host:port); default: as for the command `paddock`.

    Objects are those of `namespace`, or of none if it is "". Use it in a `with`, or close it. Every method may raise a
    ClientError.
    """

    def __init__(self, server: str | None = None, *, namespace: str = "default") -> None:
        self.connection = connect(server)
        self.namespace = namespace

    def __enter__(self) -> "Paddock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def sandbox(self, name: str) -> Sandbox:
        """Return a handle of a sandbox; nothing is requested yet."""
        return Sandbox(self.connection, self.namespace, name)

    def apply(self, text: str) -> list[dict[str, Any]]:
        """Apply the documents of a spec file's text, all or none; return the result of each."""
        body = {"documents": [{"file": "request", "text": text}], "namespace": self.namespace}
        items: list[dict[str, Any]] = self.connection.request("POST", "apply", json=body)["items"]
        return items

    def get(self, plural: str, name: str) -> dict[str, Any]:
        """Return one object, such as `get("sandboxes", "quickstart")`. Refused (reason NotFound) if missing."""
        document: dict[str, Any] = self.connection.get(f"{self._path(plural)}/{segment(name)}")
        return document

    def list(self, plural: str, *, selector: str = "") -> list[dict[str, Any]]:
        """List the objects of a kind in the namespace; `selector` by label (`app=web,tier!=db`)."""
        items: list[dict[str, Any]] = self.connection.get(self._path(plural), labelSelector=selector)["items"]
        return items

    def delete(self, plural: str, name: str) -> None:
        """Request the deletion of an object; it is finished once its container is gone."""
        self.connection.request("DELETE", f"{self._path(plural)}/{segment(name)}")

    def _path(self, plural: str) -> str:
        return f"namespaces/{segment(self.namespace)}/{segment(plural)}" if self.namespace else segment(plural)
