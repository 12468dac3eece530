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
    """The time allowed is over."""


class TooLarge(ClientError):
    """The request, or its answer, is larger than allowed."""


PaddockError = ClientError  # its name in the package paddock


class Refused(ClientError):
    """The daemon refused the request. `reason` is Kubernetes' status reason, `code` the HTTP status.

    `causes` are the details: mappings with `reason`, `field` and `message`.
    """

    def __init__(self, message: str, reason: str = "", code: int = 0, causes: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.causes = tuple(causes)

    def has_cause(self, reason: str, field: str) -> bool:
        """Tell if the daemon gave this cause."""
        return any((cause.get("reason"), cause.get("field")) == (reason, field) for cause in self.causes)


class BadRequest(Refused):
    """The request is malformed, or the daemon does not understand it."""


class Invalid(Refused):
    """The object breaks a rule; `causes` name every field at once."""


class Unauthorized(Refused):
    """The credentials are missing, unknown or expired."""


class Forbidden(Refused):
    """Your grants do not allow it."""


class NotFound(Refused):
    """The object does not exist, or you may not read it."""


class AlreadyExists(Refused):
    """An object of this name exists."""


class Conflict(Refused):
    """The object was changed meanwhile, or its state does not allow the request."""


class Expired(Refused):
    """The revision is too old to watch from; list again."""


class TooManyRequests(Refused):
    """A limit of concurrent requests is reached; it was retried as long as the daemon asked for."""


class Unavailable(Refused):
    """The daemon, its store or the sandbox can't serve the request now."""


_BY_REASON: dict[str, type[Refused]] = {
    "AlreadyExists": AlreadyExists,
    "BadRequest": BadRequest,
    "Conflict": Conflict,
    "Expired": Expired,
    "Forbidden": Forbidden,
    "Invalid": Invalid,
    "NotFound": NotFound,
    "ServiceUnavailable": Unavailable,
    "TooManyRequests": TooManyRequests,
    "Unauthorized": Unauthorized,
}


def refusal(body: Any, code: int) -> Refused:
    """Return the error for a response with that status code and body (a Status)."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Refused(f"the server answered {code} without a Paddock status; check --server", code=code)
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    cause_list = [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    reason = str(body.get("reason", ""))
    class_ = _BY_REASON.get(reason, Refused)
    return class_(str(body.get("message", f"the server answered {code}")), reason, code, cause_list)
