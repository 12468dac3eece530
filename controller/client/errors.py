"""What a client's call can raise. The words say what to do next."""

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
    """The daemon answered with a Status; `reason` is Kubernetes' word for it, `code` the HTTP status."""

    def __init__(self, message: str, reason: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.reason, self.code = reason, code


def refusal(body: Any, code: int) -> Refused:
    """The error for a response of that status code, whose body should be a Status."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Refused(f"the server answered {code}, and not as Paddock does; is --server right?", code=code)
    return Refused(str(body.get("message", f"the server answered {code}")), str(body.get("reason", "")), code)
