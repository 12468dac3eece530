"""Outcomes of an engine call. An error says what the reconcile loop should do next."""

from dataclasses import dataclass, field

from controller.kinds.common.log_tail import Tail
from controller.kinds.runtime.mount import SavedFiles

# Reason of a start that fails because the engine still holds an earlier one, which its own death cut off.
START_BLOCKED = "StartBlocked"
# Reason of a hibernation that failed: the sandbox runs on.
NOT_HIBERNATED = "NotHibernated"
# Reasons of files in memory that can't be kept: nothing is stopped for them, and nothing that is stopped loses them.
FILES_TOO_LARGE, FILES_NOT_SAVED = "FilesTooLarge", "FilesNotSaved"


@dataclass(frozen=True, slots=True)
class Ok:
    """Done, or found done already. `observe()` shows the effect or a later state.

    `tail` is the log that was read. `notes` are messages for users. `seconds` is how long it took (0: not measured).
    `saved` are the files that were saved.
    """

    container_id: str = ""
    tail: Tail | None = None
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    saved: SavedFiles | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not now, without a fault of the object: retry after so many seconds. Adds no back-off."""

    after_seconds: float
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Transient:
    """Failed, may succeed later: the object backs off until a success."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Terminal:
    """Fails until the spec changes: the object waits for a new generation."""

    reason: str
    message: str


Outcome = Ok | Waiting | Transient | Terminal
