"""What is known of the guard from inside a network: whether anything local answers there that must not."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Sighting:
    """One try. `reached` is what answered and must not, in words; `trouble` why nothing could be tried ("": it was)."""

    reached: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Guarded:
    """What the newest try came to.

    Unwatched: nobody tries here. Pending: not tried since the daemon started, or since the engine or the guard was
    away. Untried: it could not be. `words` say why nothing with a network may be started ("" when it may).
    """

    state: Literal["Unwatched", "Pending", "Holds", "Broken", "Untried"] = "Unwatched"
    words: str = ""

    @property
    def broken(self) -> str:
        """What answered, in words; "" while nothing did."""
        return self.words if self.state == "Broken" else ""


UNWATCHED = Guarded()
