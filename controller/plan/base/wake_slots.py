"""Room for wakes of hibernated sandboxes: how many begin at once."""

from dataclasses import dataclass

from controller.kinds.planning.snapshot import Snapshot

_MOST_WAKES, _MOST_WHILE_STALLED = 8, 2
HANGS_SECONDS = 5.0  # a wake takes a tenth of a second from memory, some seconds from a disk


@dataclass(frozen=True, slots=True)
class WakeSlots:
    """Room for wakes, which each take a processor for a moment."""

    waking: int
    """Sandboxes that workers are waking now."""
    free: int
    """Sandboxes that may be woken beside them."""
    hangs_at: float | None
    """When the first of them is taken for one that hangs (Unix seconds), which holds up no other; None: none is."""

    def look_at(self, now: float) -> float:
        """Return when to plan again for those that wait: when one hangs; the end of each other one is an occasion."""
        return self.hangs_at or now + HANGS_SECONDS if self.waking else now


def wake_slots(snapshot: Snapshot) -> WakeSlots:
    """Return the room for wakes: half of the processors are woken at once, so that the others' work goes on.

    While the host's processes wait for memory, which each wake needs, it is one at a time.
    """
    limit, most = max(1, snapshot.observed.facts.cpus // 2), _MOST_WAKES
    if snapshot.host.pressure.stalls:
        limit, most = 1, _MOST_WHILE_STALLED  # one that hangs holds up no other, yet they do not pile up
    instances = (snapshot.instances.get(uid) for uid in snapshot.progress.in_flight)
    hibernations = (instance.state.memory.hibernation for instance in instances if instance is not None)
    wake_times = [hibernation.at for hibernation in hibernations if hibernation and hibernation.phase == "Waking"]
    prompt = [at for at in wake_times if at <= snapshot.now < at + HANGS_SECONDS]
    free = max(0, min(limit - len(prompt), most - len(wake_times)))
    return WakeSlots(len(wake_times), free, min(prompt) + HANGS_SECONDS if prompt else None)
