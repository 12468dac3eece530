"""Files of a sandbox: limited in number and size; each operation counts as use and wakes the sandbox."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from controller.kinds.observed.observed import Container
from controller.kinds.registry import Kind
from controller.kinds.runtime.files import READ_OPERATIONS, FileError, FileRequest
from controller.ports import Files, FileWork, NotNow
from controller.service import errors
from controller.service.exec.slots import Slots
from controller.service.exec.streams import SandboxStreams

_ERRORS: dict[str, type[errors.ServiceError]] = {
    "NotFound": errors.NotFound,
    "BadPath": errors.BadRequest,
    "BadArchive": errors.BadRequest,
    "Unsafe": errors.BadRequest,
    "CutOff": errors.BadRequest,
    "Denied": errors.Forbidden,
    "ReadOnly": errors.Forbidden,
    "NoSpace": errors.NoSpace,
    "TooLarge": errors.TooLarge,
    "Failed": errors.ServiceUnavailable,
}


_NOT_RUNNING = "NotRunning"


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Limits of concurrent operations, of the size of one, and of the time that a client may stall."""

    total: int = 32
    per_sandbox: int = 8
    max_bytes: int = 16 << 30
    stall_seconds: float = 30.0


class NoFiles:
    """Files of a daemon without an engine."""

    def begin(self, _container: Container, _ask: FileRequest) -> FileWork:
        """Raise FileError."""
        raise FileError("Failed", "files are not served here")


class Work:
    """A running operation, with ServiceErrors. Closing it ends the use and frees the slot."""

    def __init__(self, subject: str, path: str, work: FileWork, over: Callable[[], None]) -> None:
        self._subject, self._path, self._work, self._over = subject, path, work, over

    def send(self, data: bytes) -> None:
        """Send a piece of input. Raises ServiceError."""
        self._translate(partial(self._work.send, data))

    def end(self) -> None:
        """Mark the end of the input. Raises ServiceError."""
        self._translate(self._work.end)

    def receive(self) -> bytes:
        """Return a piece of output; b"" at its end."""
        return self._work.receive()

    def result(self) -> dict[str, Any]:
        """Return the operation's result (see ports.FileWork). Raises ServiceError."""
        return dict(self._translate(self._work.result))

    def hand_over(self) -> tuple[int, int]:
        """Return the descriptors of its input and output, which are the caller's (see ports.FileWork)."""
        descriptors: tuple[int, int] = self._translate(self._work.hand_over)
        return descriptors

    def close(self) -> None:
        """End it. Any thread may call it, repeatedly."""
        try:
            self._work.close()
        finally:
            self._over()

    def _translate(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except FileError as error:
            raise service_error_of(error, self._subject, self._path) from error


class SandboxFiles:
    """Starts operations on the files of a sandbox."""

    def __init__(self, sandbox_streams: SandboxStreams, files: Files, limits: TransferLimits) -> None:
        self._sandbox_streams, self._files = sandbox_streams, files
        self.limits = limits
        names = ("transfers", "transfers_per_sandbox")
        self.slots = Slots("file operations", limits.total, limits.per_sandbox, names)

    def begin(self, kind: Kind, namespace: str, name: str, ask: FileRequest) -> Work:
        """Start an operation; may block while an idle-suspended sandbox starts. Raises ServiceError."""
        ask = replace(ask, max_bytes=self.limits.max_bytes)
        subject = f"{kind.name.lower()} `{name}`"
        release = self.slots.take(f"{namespace}/{name}")

        def over() -> None:
            end_use()
            release()

        try:
            work, end_use = self._sandbox_streams.enter(
                kind,
                namespace,
                name,
                lambda container: self._begin_in(container, ask, subject),
                frozen=ask.op in READ_OPERATIONS,
            )
        except FileError as error:
            release()
            raise service_error_of(error, subject, ask.path) from error
        except BaseException:
            release()
            raise
        return Work(subject, ask.path, work, over)

    def _begin_in(self, container: Container, ask: FileRequest, subject: str) -> FileWork:
        """Begin it in the container. Raises FileError; NotNow if that does not run any more."""
        try:
            return self._files.begin(container, ask)
        except FileError as error:
            if error.kind == _NOT_RUNNING:
                raise NotNow(f"{subject}: {ask.path}: {error}") from error
            raise

    def peek(self, kind: Kind, namespace: str, name: str, path: str) -> Mapping[str, Any] | None:
        """Return what is known of a file (`stat`) if the sandbox runs now; else None. It wakes none, and is no use.

        Raises ServiceError.
        """
        container = self._sandbox_streams.awake(kind, namespace, name)
        if container is None:
            return None
        subject, ask = f"{kind.name.lower()} `{name}`", FileRequest("stat", path, max_bytes=self.limits.max_bytes)
        release = self.slots.take(f"{namespace}/{name}")
        try:
            work = Work(subject, path, self._files.begin(container, ask), release)
        except FileError as error:
            release()
            raise service_error_of(error, subject, path) from error
        except BaseException:
            release()
            raise
        try:
            return work.result()
        finally:
            work.close()

    def refuse_larger(self, count: int) -> None:
        """Raise TooLarge for a transfer that announces too many bytes."""
        if count > self.limits.max_bytes:
            limit = f"the limit of one transfer is {self.limits.max_bytes} (transfer_max_bytes)"
            raise errors.TooLarge(f"these are {count} bytes; {limit}")


def service_error_of(error: FileError, subject: str, path: str) -> errors.ServiceError:
    """Return the ServiceError for a FileError. Its `causes` give the kind, for programs."""
    message = f"{subject}: {path}: {error}"
    causes = [{"reason": error.kind, "message": str(error), "field": "path"}]
    return _ERRORS.get(error.kind, errors.Conflict)(message, causes=causes)
