"""A cordoned host: nothing new starts on it. What holds its capacity goes on, restarts too, as on a Kubernetes node."""

from collections.abc import Iterable

from controller.kinds.host import StoredHost
from controller.kinds.runtime.container import Limits

REASON = "HostCordoned"


def pauses(hosts: Iterable[StoredHost], held: Limits, asked: Limits) -> str:
    """Return the message of a start that has to wait; empty when it need not, or nothing is started."""
    if held.pids or not asked.pids:
        return ""
    return next(filter(None, map(_closed, hosts)), "")


def _closed(host: StoredHost) -> str:
    name = host.obj.name
    if host.spec is None:
        return f"host {name}: this version can't read its stored spec; write it with `paddock host uncordon {name}`"
    if host.spec.schedulable:
        return ""
    return f"host {name} is cordoned: nothing new is started until `paddock host uncordon {name}`"
