"""Sightings of orphans over the passes, and the result of one pass over them."""

from dataclasses import dataclass, field

from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.observed import Container
from controller.kinds.planning.plan import Deferral, Group


@dataclass(slots=True)
class Sightings:
    """Sightings of orphans, kept from pass to pass. A restart of the daemon loses them and restarts every grace.

    `since` is when each container was first seen as an orphan without a break; `swept_at` when some were last removed;
    `removing` are those whose removal has not been reported yet, by uid.
    """

    since: dict[str, float] = field(default_factory=dict)
    swept_at: float = 0.0
    removing: dict[str, ObjectRef] = field(default_factory=dict)

    def note(self, orphans: list[Container], now: float) -> None:
        """Keep these orphans and no others. A time in the future means that the clock was set back: count from now."""
        self.since = {orphan.id: min(self.since.get(orphan.id, now), now) for orphan in orphans}


@dataclass(slots=True)
class Sweep:
    """Result of one pass over orphans. `stray_count` is with or without proof (None: the host is not observable)."""

    stray_count: int | None = None
    removed: int = 0
    groups: list[Group] = field(default_factory=list)
    deferrals: list[Deferral] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
