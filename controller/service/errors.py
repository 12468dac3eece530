"""What a use-case can answer instead of a result, with Kubernetes' reasons. Every door shows these the same way."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from controller import ports
from controller.kinds.common.problem import Problem, bounded
from controller.kinds.registry import Kind


class ServiceError(Exception):
    """Base of all. `causes` are Kubernetes' StatusCauses (field, message, reason, and the place in a file)."""

    reason: ClassVar[str] = "InternalError"
    code: ClassVar[int] = 500

    def __init__(self, message: str, *, causes: Sequence[Mapping[str, Any]] = (), **details: str) -> None:
        super().__init__(message)
        self.causes = tuple(causes)
        self.details = details


_Error = TypeVar("_Error", bound=ServiceError)


class BadRequest(ServiceError):
    reason, code = "BadRequest", 400


class Unauthorized(ServiceError):
    """Nobody knows who asks."""

    reason, code = "Unauthorized", 401


class Forbidden(ServiceError):
    reason, code = "Forbidden", 403


class NotFound(ServiceError):
    reason, code = "NotFound", 404


class MethodNotAllowed(ServiceError):
    """A kind that is read-only can be read, and nothing else."""

    reason, code = "MethodNotAllowed", 405


class Conflict(ServiceError):
    """The object is not as the request took it to be: read it again."""

    reason, code = "Conflict", 409


class AlreadyExists(ServiceError):
    reason, code = "AlreadyExists", 409


class Gone(ServiceError):
    """The asked revision is no longer kept: list again."""

    reason, code = "Expired", 410


class TooLarge(ServiceError):
    """More than one transfer may have."""

    reason, code = "RequestEntityTooLarge", 413


class Invalid(ServiceError):
    reason, code = "Invalid", 422


class TooManyRequests(ServiceError):
    """The daemon serves only so many of these at a time."""

    reason, code = "TooManyRequests", 429


class ServiceUnavailable(ServiceError):
    """The store or the engine can't be used now."""

    reason, code = "ServiceUnavailable", 503


class NoSpace(ServiceError):
    """The box has no room for it."""

    reason, code = "InsufficientStorage", 507


def cause(problem: Problem) -> dict[str, Any]:
    """A problem as a StatusCause, with its place where it has one."""
    found = {"reason": problem.reason, "message": problem.message, "field": problem.field}
    if problem.file:
        found["file"] = problem.file
    place = {"line": problem.line, "column": problem.column} if problem.line else {}
    return {**found, **place}


def invalid(problems: Sequence[Problem]) -> Invalid:
    """One error that tells every problem."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    return refused(Invalid, f"{count}; nothing was changed", problems)


def refused(error: type[_Error], words: str, problems: Sequence[Problem]) -> _Error:
    """An error of that kind, which tells these problems after the words: the first of them, where there are many."""
    told = bounded(problems)
    return error("\n".join((words, *map(str, told))), causes=[cause(each) for each in told])


def check_built_in(kind: Kind, name: str) -> None:
    """Raise Conflict for an object that belongs to Paddock."""
    if words := kind.is_built_in(name):
        raise Conflict(words, kind=kind.plural, name=name)


@contextmanager
def store_in_words() -> Iterator[None]:
    """Turns what the store may raise into errors for the user."""
    try:
        yield
    except ports.Conflict as error:
        raise Conflict(str(error)) from error
    except ports.ChangesGone as error:
        raise Gone(str(error)) from error
    except ports.StoreError as error:
        raise ServiceUnavailable(f"the store can't be used now: {error}") from error
