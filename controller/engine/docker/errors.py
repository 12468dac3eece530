"""Foreign exceptions become words and outcomes here, and nowhere else.

docker-py raises its own errors, requests' errors and, from streams, bare socket errors. `fault_of` makes one
`Fault` of any of them; the rest of the room knows no other.
"""

import http.client
import json
from typing import Literal

import docker.errors
import requests.exceptions

from controller.kinds.planning.outcome import Outcome, Terminal, Transient, Waiting

# Everything that a call to the engine may raise.
FOREIGN = (docker.errors.DockerException, requests.exceptions.RequestException, http.client.HTTPException, OSError)

UNREACHABLE, UNREADABLE = "EngineUnreachable", "Unreadable"
RETRY_SECONDS = 2.0

# `busy`: another call for the same container waits already, and this one was not made.
Kind = Literal["4xx", "5xx", "timeout", "connection", "busy"]


class Fault(Exception):
    """A call that failed. `status` is the HTTP status (0: no answer came), `words` is for a person."""

    def __init__(self, kind: Kind, words: str, *, status: int = 0) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words
        self.status = status

    @property
    def unreachable(self) -> bool:
        """Whether the engine did not answer at all. Says nothing about any container."""
        return self.kind in ("timeout", "connection") or self.status in (502, 503, 504)

    @property
    def gone(self) -> bool:
        """Whether the engine said that the thing does not exist. Only a 404 says that."""
        return self.status == 404


def fault_of(error: BaseException, base_url: str) -> Fault:
    """The fault behind any exception of FOREIGN."""
    if isinstance(error, docker.errors.APIError):
        return of_status(error.status_code or 500, str(error.explanation or ""))
    if isinstance(error, requests.exceptions.Timeout | TimeoutError) or "timed out" in str(error):
        return Fault("timeout", f"the Docker Engine at {base_url} did not answer in time; see `journalctl -u docker`")
    if isinstance(error, docker.errors.DockerException):
        return Fault("connection", f"the Docker Engine at {base_url} cannot be used: {error}")
    if isinstance(error, requests.exceptions.InvalidJSONError | json.JSONDecodeError):
        return Fault("5xx", f"what answers at {base_url} is no Docker Engine: it sent no JSON", status=500)
    return Fault(
        "connection", f"no Docker Engine answers at {base_url}: {_cause(error)}; start it (`systemctl start docker`)"
    )


def of_status(status: int, words: str) -> Fault:
    """The fault of an HTTP status of 400 or above, with the engine's own words."""
    return Fault("4xx" if status < 500 else "5xx", words.strip() or f"HTTP {status}", status=status)


def outcome_of(fault: Fault) -> Outcome:
    """What the loop should do about a fault that no action gives a meaning of its own."""
    if fault.kind == "busy":
        return Waiting(RETRY_SECONDS, UNREADABLE, fault.words)
    if fault.unreachable:
        return Waiting(RETRY_SECONDS, UNREACHABLE, fault.words)
    if fault.status == 400:
        return Terminal("InvalidConfig", f"the engine refuses this: {fault.words}")
    if fault.status == 409:
        return Transient("Conflict", fault.words)
    # An engine that was stopped while the container began has lost a mount below one of its own (seen: 20.10).
    lost = "failed to remove root filesystem" in fault.words and "resource busy" in fault.words
    advice = "; stop the engine, `umount` that folder, and start the engine again" if lost else ""
    return Transient("EngineError", f"the engine answered with an error: {fault.words}{advice}")


def _cause(error: BaseException) -> str:
    """The innermost system error's words: `Connection refused` says more than what five libraries wrap around it."""
    seen: BaseException | None = error
    found = ""
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            found = seen.strerror
        inner = seen.__cause__ or seen.__context__
        args = [each for each in seen.args if isinstance(each, BaseException)]
        seen = inner or (args[0] if args else None)
    return (found or str(error) or type(error).__name__).lower()
