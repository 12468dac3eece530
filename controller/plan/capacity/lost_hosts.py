"""Sandboxes of hosts whose daemon is away: they may run on, and nobody can tell. They stay bound, and nothing moves."""

from collections.abc import Collection, Iterable, Iterator

from controller.kinds.meta import Condition, StoredObject
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.planning.plan import StatusWrite
from controller.plan.common.status_json import dated

REASON = "HostLost"


def lost_statuses(objects: Iterable[StoredObject], lost: Collection[str], now: float) -> Iterator[StatusWrite]:
    """Yield the statuses of the sandboxes on lost hosts that do not say so yet.

    `lost` are names of hosts. A daemon that is back writes its own statuses over these.
    """
    for obj in objects:
        host = host_of(obj, UNBOUND)
        conditions = obj.status.get("conditions", ())
        ready = next((each for each in conditions if each["type"] == "Ready"), None)
        if host not in lost or (ready is not None and ready["reason"] == REASON):
            continue
        words = f"the daemon of host {host} is away; the sandbox may run on, and is not started elsewhere"
        made = dated(Condition("Ready", "Unknown", REASON, words), ready, obj.generation, now)
        others = [each for each in conditions if each["type"] != "Ready"]
        yield StatusWrite(obj.ref, {**obj.status, "conditions": [made, *others]})
