"""Ability of the host to hibernate sandboxes: read by a pass, at most every few seconds."""

from collections.abc import Callable, Mapping

import structlog

from controller.kinds.observed.observed import Container
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.ports import Clock

_log = structlog.get_logger("paddock.hibernation")
_APART_SECONDS = 5.0


def swapped_bytes(containers: Mapping[str, tuple[Container, ...]]) -> int:
    """Return what frozen containers have in swap."""
    memories = (container.frozen_memory for group in containers.values() for container in group)
    return sum(memory.swapped_bytes for memory in memories if memory is not None)


class HibernationWatch:
    """Keeps the ability of a few seconds ago. Used by the loop's thread alone.

    `judge` reads the host's swap and judges it, given what hibernated sandboxes use of it; None: never able.
    """

    def __init__(self, judge: Callable[[int], HibernationAbility] | None, clock: Clock) -> None:
        self._judge, self._clock = judge, clock
        self._read_at: float | None = None
        self._ability = UNKNOWN_ABILITY

    def observe_now(self, containers: Mapping[str, tuple[Container, ...]]) -> HibernationAbility:
        """Return the ability; the same Python object as long as nothing changes."""
        now = self._clock.now()
        if self._judge is None or (self._read_at is not None and 0 <= now - self._read_at < _APART_SECONDS):
            return self._ability
        self._read_at = now
        before, ability = self._ability, self._judge(swapped_bytes(containers))
        if ability != before:
            self._ability = ability
        if (before.available, before.reason) != (ability.available, ability.reason):
            _log.info("hibernation", available=ability.available, reason=ability.reason, message=ability.message)
        return self._ability
