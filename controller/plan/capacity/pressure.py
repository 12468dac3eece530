"""What a machine that is short of something means: nothing new is started, and the warm members of pools go first.

What holds its limits already goes on, restarts included. Who is stopped when it gets worse is in eviction.py.
"""

from collections.abc import Iterable, Iterator

from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.pressure import Pressure
from controller.kinds.planning.instance_record import Instance
from controller.plan.capacity.quota import Claim

REASON = "HostPressure"


def pauses(pressure: Pressure, asked: Claim) -> str:
    """Why this start has to wait, in words; empty when it has not, or is none."""
    if not pressure.low or asked.base.pids or not asked.whole.pids:
        return ""
    return f"{pressure.words()}: nothing new is started until it has recovered"


def told(pool: ObjectRef, retired: Iterable[Instance], pressure: Pressure, now: float) -> Iterator[Event]:
    """An event for each warm member that goes because of it."""
    for each in retired if pressure.low else ():
        yield Event(pool, "Warning", "Evicted", f"{each.memory.hostname}: {pressure.words()}", now)
