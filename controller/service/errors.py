"""Errors of the use-cases, with Kubernetes' reasons. Every endpoint shows them the same way."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from controller import ports
from controller.kinds.common.problem import Problem, bounded
from controller.kinds.registry import Kind

SOON = 1
"""Seconds after which a request is worth another try that an engine or a starting sandbox could not serve."""


class ServiceError(Exception):
    """Base class. `causes` are Kubernetes' StatusCauses (field, message, reason, and the position in a file)."""

    reason: ClassVar[str] = "InternalError"
    code: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        causes: Sequence[Mapping[str, Any]] = (),
        retry_after_seconds: int | None = None,
        **details: str,
    ) -> None:
        """`retry_after_seconds`: nothing was done, and the same request may succeed then."""
        super().__init__(message)
        self.causes = tuple(causes)
        self.details = details
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str] | None:
        """The header that tells clients when to retry; None without one."""
        return None if self.retry_after_seconds is None else {"Retry-After": str(self.retry_after_seconds)}


_Error = TypeVar("_Error", bound=ServiceError)


class BadRequest(ServiceError):
    reason, code = "BadRequest", 400


class Unauthorized(ServiceError):
    """The caller is not authenticated."""

    reason, code = "Unauthorized", 401


class Forbidden(ServiceError):
    reason, code = "Forbidden", 403


class NotFound(ServiceError):
    reason, code = "NotFound", 404


class MethodNotAllowed(ServiceError):
    """The kind is read-only."""

    reason, code = "MethodNotAllowed", 405


class Conflict(ServiceError):
    """The object has changed since the caller read it; read it again."""

    reason, code = "Conflict", 409


class AlreadyExists(ServiceError):
    reason, code = "AlreadyExists", 409


class Gone(ServiceError):
    """The requested revision is no longer kept; list again."""

    reason, code = "Expired", 410


class TooLarge(ServiceError):
    """The transfer exceeds the size limit."""

    reason, code = "RequestEntityTooLarge", 413


class Misdirected(ServiceError):
    """The object is not bound to this host, or not any more; look up its host again."""

    reason, code = "Misdirected", 421


class Invalid(ServiceError):
    reason, code = "Invalid", 422


class TooManyRequests(ServiceError):
    """A limit on concurrent requests of this type is reached."""

    reason, code = "TooManyRequests", 429


class BadGateway(ServiceError):
    """The program in the sandbox did not answer as HTTP."""

    reason, code = "BadGateway", 502


class ServiceUnavailable(ServiceError):
    """The store or the engine is unavailable."""

    reason, code = "ServiceUnavailable", 503


def of_stream(error: ports.StreamError) -> ServiceUnavailable:
    """Return a failed stream as unavailable; clients try again by themselves what was not begun."""
    return ServiceUnavailable(str(error), retry_after_seconds=SOON if isinstance(error, ports.NotNow) else None)


class NoSpace(ServiceError):
    """The sandbox has no free space for it."""

    reason, code = "InsufficientStorage", 507


def cause(problem: Problem) -> dict[str, Any]:
    """Return a problem as a StatusCause, with its position in a file if it has one."""
    fields = {"reason": problem.reason, "message": problem.message, "field": problem.field}
    if problem.file:
        fields["file"] = problem.file
    place = {"line": problem.line, "column": problem.column} if problem.line else {}
    return {**fields, **place}


def invalid(problems: Sequence[Problem]) -> Invalid:
    """Return one error with every problem."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    return refusal_of(Invalid, f"{count}; nothing was changed", problems)


def refusal_of(error: type[_Error], message: str, problems: Sequence[Problem]) -> _Error:
    """Return an error of that class, with a message and these problems; of many only the first."""
    listed_problems = bounded(problems)
    return error(
        "\n".join((message, *map(str, listed_problems))), causes=[cause(problem) for problem in listed_problems]
    )


def check_built_in(kind: Kind, name: str) -> None:
    """Raise Conflict for an object that belongs to Paddock."""
    if message := kind.is_built_in(name):
        raise Conflict(message, kind=kind.plural, name=name)


@contextmanager
def translate_store_errors() -> Iterator[None]:
    """Translate the store's exceptions into ServiceErrors."""
    try:
        yield
    except ports.Conflict as error:
        raise Conflict(str(error)) from error
    except ports.ChangesGone as error:
        raise Gone(str(error)) from error
    except ports.StoreError as error:
        raise ServiceUnavailable(f"the store can't be used now: {error}") from error
