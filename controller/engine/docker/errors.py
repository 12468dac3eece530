"""Translation of foreign exceptions into faults and outcomes; done nowhere else.

docker-py raises its own errors, requests' errors and, from streams, bare socket errors. `fault_of` makes one `Fault` of
any of them; the rest of this package handles no other.
"""

import http.client
import json
import re
from typing import Literal

import docker.errors
import requests.exceptions

from controller.kinds.planning.outcome import Outcome, Terminal, Transient, Waiting
from controller.kinds.runtime.network import RESTART, RULES_LOST

# Everything that a call to the engine may raise.
FOREIGN = (docker.errors.DockerException, requests.exceptions.RequestException, http.client.HTTPException, OSError)

UNREACHABLE, UNREADABLE = "EngineUnreachable", "Unreadable"
RETRY_SECONDS = 2.0

# A shim, or the runtime's state, of a task that the engine no longer knows. Only removing its container removes it.
_LEFT_BEHIND = re.compile(r"task \S* ?already exists|container with (given )?id (already )?exists")

# The engine writes its firewall rules at its start, and misses them later if somebody flushed them.
_RULES_LOST = re.compile(r"setup ip ?tables|ip6?tables failed|(No such file or directory|No chain).*\bnft\b", re.I)

# `busy`: another call for the same container hangs, so this one was not made.
Kind = Literal["4xx", "5xx", "timeout", "connection", "busy"]


class Fault(Exception):
    """A call that failed. `status` is the HTTP status (0: no answer came), `message` is for a person."""

    def __init__(self, kind: Kind, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status

    @property
    def unreachable(self) -> bool:
        """True if the engine did not answer at all. That says nothing about any container."""
        return self.kind in ("timeout", "connection") or self.status in (502, 503, 504)

    @property
    def left_behind(self) -> bool:
        """True if what an earlier start left behind, cut off by the engine's death, is in the way of this one."""
        return _LEFT_BEHIND.search(self.message) is not None

    @property
    def rules_lost(self) -> bool:
        """True if the engine misses its own firewall rules."""
        return _RULES_LOST.search(self.message) is not None

    @property
    def is_gone(self) -> bool:
        """True if the engine answered 404: the object does not exist."""
        return self.status == 404


def fault_of(error: BaseException, base_url: str) -> Fault:
    """Return the fault for any exception of FOREIGN."""
    if isinstance(error, docker.errors.APIError):
        return of_status(error.status_code or 500, str(error.explanation or ""))
    if isinstance(error, requests.exceptions.Timeout | TimeoutError) or "timed out" in str(error):
        return Fault("timeout", f"the Docker Engine at {base_url} did not answer in time; see `journalctl -u docker`")
    if isinstance(error, docker.errors.DockerException):
        return Fault("connection", f"the Docker Engine at {base_url} cannot be used: {error}")
    if isinstance(error, requests.exceptions.InvalidJSONError | json.JSONDecodeError):
        return Fault(
            "5xx", f"{base_url}: not a Docker Engine (its answer is not JSON); check PADDOCK_DOCKER_HOST", status=500
        )
    return Fault(
        "connection", f"no Docker Engine answers at {base_url}: {_cause(error)}; start it (`systemctl start docker`)"
    )


def of_status(status: int, message: str) -> Fault:
    """Return the fault of an HTTP status of 400 or above, with the engine's own message."""
    return Fault("4xx" if status < 500 else "5xx", message.strip() or f"HTTP {status}", status=status)


def outcome_of(fault: Fault) -> Outcome:
    """Return the default outcome of a fault."""
    if fault.kind == "busy":
        return Waiting(RETRY_SECONDS, UNREADABLE, fault.message)
    if fault.unreachable:
        return Waiting(RETRY_SECONDS, UNREACHABLE, fault.message)
    if fault.status == 400:
        return Terminal("InvalidConfig", f"the engine refuses this configuration: {fault.message}")
    if fault.status == 409:
        return Transient("Conflict", fault.message)
    if fault.rules_lost:
        return Transient(RULES_LOST, advised(fault))
    # Stopping the engine during a container's start can leave a stray mount below its root (seen: 20.10).
    lost = "failed to remove root filesystem" in fault.message and "resource busy" in fault.message
    advice = "; stop the engine, `umount` that folder, and start the engine again" if lost else ""
    return Transient("EngineError", f"the engine answered with an error: {fault.message}{advice}")


def advised(fault: Fault) -> str:
    """Return the fault's message, with what to do where that does not follow from it."""
    if fault.rules_lost:
        return f"the engine's firewall rules are gone, so it makes no network: {RESTART}; it said: {fault.message}"
    return fault.message


def _cause(error: BaseException) -> str:
    """Return the innermost system error, such as `connection refused`, without the wrapping of five libraries."""
    current: BaseException | None = error
    message = ""
    while current is not None:
        if isinstance(current, OSError) and current.strerror:
            message = current.strerror
        # Some libraries chain their errors, others hand them on as an argument.
        inner = current.__cause__ or current.__context__
        args = [argument for argument in current.args if isinstance(argument, BaseException)]
        current = inner or (args[0] if args else None)
    return (message or str(error) or type(error).__name__).lower()
