"""What became of one engine call. An error says what the loop should do, not only what went wrong."""

from dataclasses import dataclass

from controller.kinds.common.log_tail import Tail


@dataclass(frozen=True, slots=True)
class Ok:
    """Done (or found done already). `observe()` shows the effect, or something later. `tail` is what was read.

    `notes` are what people should know of it.
    """

    container_id: str = ""
    tail: Tail | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not now, through no fault of the object: look again after so many seconds. Grows no back-off."""

    after_seconds: float
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Transient:
    """Failed, may work later: the object backs off (forgotten on success)."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Terminal:
    """Will fail again until the spec changes: the object waits for a new generation."""

    reason: str
    message: str


Outcome = Ok | Waiting | Transient | Terminal
