"""Results of the network canary, which tries from inside a network to reach forbidden local addresses."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CanaryTry:
    """One try. `reached` names what answered and must not. `trouble` says why nothing could be tried ("": it was)."""

    reached: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Result of the newest try.

    Unwatched: the canary is off. Pending: not tried since the daemon started, or since the engine or the firewall was
    away. Untried: the try failed. `message` says why nothing with a network may be started ("": it may).
    """

    state: Literal["Unwatched", "Pending", "Holds", "Broken", "Untried"] = "Unwatched"
    message: str = ""

    @property
    def broken(self) -> str:
        """Return what answered and must not; "" if nothing did."""
        return self.message if self.state == "Broken" else ""


UNWATCHED = CanaryResult()
