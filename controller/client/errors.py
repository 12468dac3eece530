"""What a client's call can raise. The words say what to do next."""

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Base of all; `message` is for people."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BadAddress(ClientError):
    """What was given is no address of a daemon."""


class Unreachable(ClientError):
    """No daemon answers."""


class TimeIsOver(ClientError):
    """Nothing came for as long as was to be waited."""


class Refused(ClientError):
    """The daemon answered with a Status; `reason` is Kubernetes' word for it, `code` the HTTP status.

    `causes` are its details for programs: mappings with `reason`, `field` and `message`.
    """

    def __init__(self, message: str, reason: str = "", code: int = 0, causes: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.reason, self.code, self.causes = reason, code, tuple(causes)

    def has_cause(self, reason: str, field: str) -> bool:
        """Tell if the daemon named this cause."""
        return any((each.get("reason"), each.get("field")) == (reason, field) for each in self.causes)


def refusal(body: Any, code: int) -> Refused:
    """The error for a response of that status code, whose body should be a Status."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Refused(f"the server answered {code}, and not as Paddock does; is --server right?", code=code)
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    named = [each for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []
    return Refused(str(body.get("message", f"the server answered {code}")), str(body.get("reason", "")), code, named)
