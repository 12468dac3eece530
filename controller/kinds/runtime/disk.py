"""Enforcement of a sandbox's disk limit: the spec's rules, and the engine's ability."""

from dataclasses import dataclass
from typing import Literal

from controller.kinds.base import Model


class DiskRules(Model):
    """Enforcement of the disk limit."""

    enforcement: Literal["BestEffort", "Required"] = "BestEffort"
    """Required: refused if this host can't enforce the disk limit. BestEffort: measured there, and stopped beyond it.
    """


@dataclass(frozen=True, slots=True)
class DiskAbility:
    """The engine's ability to limit a writable layer, found by trying. `message` is the result."""

    enforced: bool
    message: str
