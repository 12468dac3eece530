"""The files of a box as use-cases: bounded in number and size, and each of them a use of the box that wakes it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from controller.kinds.observed.observed import Container
from controller.kinds.registry import Kind
from controller.kinds.runtime.files import LOOKS, FileAsk, FileError
from controller.ports import Files, FileWork
from controller.service import errors
from controller.service.sandbox.slots import Slots
from controller.service.sandbox.streams import IntoBox

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


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """How many operations at a time, how large one may be, and how long one whose client sends nothing is kept."""

    total: int = 32
    per_sandbox: int = 8
    max_bytes: int = 16 << 30
    stall_seconds: float = 30.0


class NoFiles:
    """Where no engine's files are at hand."""

    def begin(self, _container: Container, _ask: FileAsk) -> FileWork:
        """Refuse it."""
        raise FileError("Failed", "files are not served here")


class Work:
    """An operation under way, with errors in the service's words. Close it: that frees the box and the slot."""

    def __init__(self, word: str, path: str, work: FileWork, over: Callable[[], None]) -> None:
        self._word, self._path, self._work, self._over = word, path, work, over

    def send(self, data: bytes) -> None:
        """A piece of input. Raises ServiceError."""
        self._in_words(partial(self._work.send, data))

    def end(self) -> None:
        """All input was sent. Raises ServiceError."""
        self._in_words(self._work.end)

    def receive(self) -> bytes:
        """A piece of output, b"" at its end."""
        return self._work.receive()

    def result(self) -> dict[str, Any]:
        """What the operation says: see ports.FileWork. Raises ServiceError."""
        return dict(self._in_words(self._work.result))

    def close(self) -> None:
        """End it. May be called from any thread, and again."""
        try:
            self._work.close()
        finally:
            self._over()

    def _in_words(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except FileError as error:
            raise failed(error, self._word, self._path) from error


class BoxFiles:
    """Begins operations on the files of a sandbox."""

    def __init__(self, into_box: IntoBox, files: Files, limits: TransferLimits) -> None:
        self._into_box, self._files = into_box, files
        self.limits = limits
        names = ("transfers", "transfers_per_sandbox")
        self.slots = Slots("file operations", limits.total, limits.per_sandbox, names)

    def begin(self, kind: Kind, namespace: str, name: str, ask: FileAsk) -> Work:
        """Start it; may block for as long as a box that sleeps takes to start. Raises ServiceError."""
        ask = replace(ask, max_bytes=self.limits.max_bytes)
        word = f"{kind.name.lower()} `{name}`"
        give_back = self.slots.take(f"{namespace}/{name}")

        def over() -> None:
            left()
            give_back()

        try:
            work, left = self._into_box.enter(
                kind, namespace, name, lambda box: self._files.begin(box, ask), frozen=ask.op in LOOKS
            )
        except FileError as error:
            give_back()
            raise failed(error, word, ask.path) from error
        except BaseException:
            give_back()
            raise
        return Work(word, ask.path, work, over)

    def refuse_larger(self, count: int) -> None:
        """Raises TooLarge for a transfer that says it has so many bytes."""
        if count > self.limits.max_bytes:
            most = f"the most that one transfer may have are {self.limits.max_bytes} (transfer_max_bytes)"
            raise errors.TooLarge(f"these are {count} bytes: {most}")


def failed(error: FileError, word: str, path: str) -> errors.ServiceError:
    """The service's error for it; its `causes` name the kind, for programs."""
    message = f"{word}: {path}: {error}"
    causes = [{"reason": error.kind, "message": str(error), "field": "path"}]
    return _ERRORS.get(error.kind, errors.Conflict)(message, causes=causes)
