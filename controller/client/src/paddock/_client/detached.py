"""Commands in a sandbox that outlive their client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock._client.command import as_json, checked_command
from paddock._client.connection import Connection, segment


@dataclass(frozen=True, slots=True)
class DetachedExec:
    """State of a detached command: Running, Exited, TimedOut, Killed or Lost.

    Times are RFC 3339. `message` of a Lost command says why its exit is unknown.
    """

    id: str
    command: Sequence[str]
    state: str
    started_time: str
    finished_time: str
    exit_code: int | None
    message: str
    omitted_bytes: int


def start(
    connection: Connection,
    path: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    working_dir: str = "",
    timeout_seconds: float | None = None,
) -> DetachedExec:
    """Start a command in the sandbox at `path`. Raises Refused, and TypeError if the command is not a list."""
    request = {
        "command": checked_command(command, "detach"),
        "env": as_json(env),
        "workingDir": working_dir,
        "timeoutSeconds": timeout_seconds,
    }
    return _read(connection.request("POST", f"{path}/execs", json=request))


def every(connection: Connection, path: str) -> Sequence[DetachedExec]:
    """List the detached commands, oldest first."""
    return [_read(entry) for entry in connection.get(f"{path}/execs")["items"]]


def log(connection: Connection, path: str, id_: str) -> bytes:
    """Return the output so far."""
    with connection.stream(f"{path}/execs/{segment(id_)}/log", {}) as pieces:
        return b"".join(pieces)


def kill(connection: Connection, path: str, id_: str) -> DetachedExec:
    """Kill all processes of a command."""
    return _read(connection.request("POST", f"{path}/execs/{segment(id_)}/kill"))


def _read(entry: Mapping[str, Any]) -> DetachedExec:
    return DetachedExec(
        id=entry["id"],
        command=tuple(entry["command"]),
        state=entry["state"],
        started_time=entry["startedTime"],
        finished_time=entry.get("finishedTime", ""),
        exit_code=entry.get("exitCode"),
        message=entry.get("message", ""),
        omitted_bytes=entry.get("omittedBytes", 0),
    )
