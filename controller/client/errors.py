"""Errors of the client. Each message says what to do next."""

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Base of all errors; `message` is for people."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BadAddress(ClientError):
    """Malformed address of a daemon."""


class Unreachable(ClientError):
    """The daemon can't be reached."""


class TimedOut(ClientError):
    """Nothing arrived within the time allowed."""


TimeIsOver = TimedOut  # the former name


class Refused(ClientError):
    """The daemon refused the request. `reason` is Kubernetes' status reason, `code` the HTTP status.

    `causes` are the details: mappings with `reason`, `field` and `message`.
    """

    def __init__(self, message: str, reason: str = "", code: int = 0, causes: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.reason, self.code, self.causes = reason, code, tuple(causes)

    def has_cause(self, reason: str, field: str) -> bool:
        """Tell if the daemon gave this cause."""
        return any((each.get("reason"), each.get("field")) == (reason, field) for each in self.causes)


def refusal(body: Any, code: int) -> Refused:
    """Return the error for a response with that status code and body (a Status)."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Refused(f"the server answered {code} without a Paddock status; check --server", code=code)
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    named = [each for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []
    return Refused(str(body.get("message", f"the server answered {code}")), str(body.get("reason", "")), code, named)
