"""Errors in E2B's shapes, with our messages."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from controller.e2b.frames import END, frame
from controller.service import errors
from controller.service.errors import ServiceError

_STATUS = {422: 400}  # clients have an exception for 400
_CODES = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    405: "unimplemented",
    409: "failed_precondition",
    413: "resource_exhausted",
    422: "invalid_argument",
    429: "resource_exhausted",
    501: "unimplemented",
    503: "unavailable",
    504: "deadline_exceeded",
    507: "resource_exhausted",
}


class SandboxGone(ServiceError):
    """The sandbox does not run. Clients know that by the status, and by `was not found` in the message."""

    reason, code = "BadGateway", 502

    def __init__(self, name: str, why: str = "") -> None:
        super().__init__(f"The sandbox {name} was not found{': ' + why if why else ''}")


class NotOffered(ServiceError):
    """A call that Paddock has no counterpart for."""

    reason, code = "NotOffered", 400


class Ended(ServiceError):
    """A stream's time has passed."""

    reason, code = "Timeout", 504


def answer(error: ServiceError) -> Response:
    """Return an error of the control plane, of files and of the code interpreter."""
    code = _STATUS.get(error.code, error.code)
    body: dict[str, Any] = {"code": code, "message": one_line(error)}
    return JSONResponse(body, code, _headers(error))


def unary(error: ServiceError) -> Response:
    """Return an error of a call of Connect that is no stream."""
    if isinstance(error, SandboxGone):
        return answer(error)
    code = 400 if error.code in (409, 422) and not isinstance(error, errors.AlreadyExists) else error.code
    return JSONResponse({"code": code_of(error), "message": one_line(error)}, code, _headers(error))


def last_frame(error: ServiceError) -> bytes:
    """Return the end of a stream that failed."""
    return frame({"error": {"code": code_of(error), "message": one_line(error)}}, END)


def code_of(error: ServiceError) -> str:
    """Return Connect's code of an error."""
    return "already_exists" if isinstance(error, errors.AlreadyExists) else _CODES.get(error.code, "internal")


def one_line(error: ServiceError) -> str:
    """Return the message with every reason, in one line."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _headers(error: ServiceError) -> Mapping[str, str] | None:
    if error.headers is not None:
        return error.headers
    return {"Should-Retry": "false"} if error.code in (502, 503, 504) else None
