"""How a sandbox is held to its disk limit: what a spec may insist on, what the engine was found to be able to."""

from dataclasses import dataclass
from typing import Literal

from controller.kinds.base import Model


class DiskRules(Model):
    """`Required`: refused where the limit can't be enforced. `BestEffort`: measured there, and stopped beyond it."""

    enforcement: Literal["BestEffort", "Required"] = "BestEffort"
    """Required: refused where this host can't hold it to its disk limit. BestEffort: measured there, and stopped beyond
    it.
    """


@dataclass(frozen=True, slots=True)
class DiskAbility:
    """Whether this engine holds a writable layer to a size. Found by trying; `words` say what came of it."""

    enforced: bool
    words: str
