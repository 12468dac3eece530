"""Claim of an object on capacity: what it holds, and what it asks for beyond that."""

from dataclasses import dataclass, replace

from controller.kinds.runtime.container import Limits
from controller.policy.sandbox import NO_LIMITS


@dataclass(frozen=True, slots=True)
class Share:
    """Resources of the egress container: held (`base`) and needed (`total`), beside its sandbox's own."""

    base: Limits = NO_LIMITS
    total: Limits = NO_LIMITS


NONE = Share()


@dataclass(frozen=True, slots=True)
class Claim:
    """Resources of one object: held whatever the quotas say (`base`, `seated`), and needed in full (`total`).

    `beside` is the same for its egress container. `holds_up`: later objects wait for it while it lacks capacity.
    """

    base: Limits
    total: Limits
    seated: bool
    wants_seat: bool
    beside: Share = NONE
    holds_up: bool = True

    @property
    def asks(self) -> bool:
        """True if it needs capacity that it does not hold."""
        needs_more = self.total != self.base or self.beside.total != self.beside.base
        return needs_more or (self.wants_seat and not self.seated)

    def without_capacity(self) -> "Claim":
        """Return the claim of an object that was not admitted: what it holds already."""
        return replace(self, total=self.base, beside=replace(self.beside, total=self.beside.base))
