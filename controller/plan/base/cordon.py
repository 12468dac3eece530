"""A cordoned host: nothing new starts on it. What holds its capacity goes on, restarts too, as on a Kubernetes node."""

from controller.kinds.host import StoredHost
from controller.kinds.planning.snapshot import FleetView
from controller.kinds.runtime.container import Limits

REASON = "HostCordoned"


def pauses(fleet: FleetView, reserved: Limits, requested: Limits) -> str:
    """Return the message of a start that has to wait; empty when it need not, or nothing is started.

    Only this host counts: another one's cordon closes that one.
    """
    if reserved.pids or not requested.pids:
        return ""
    own_hosts = (host for host in fleet.hosts.values() if host.obj.name == fleet.host)
    return next(filter(None, map(_closed_reason, own_hosts)), "")


def is_drained(fleet: FleetView) -> bool:
    """Return True if this host is being emptied."""
    return any(
        host.spec is not None and host.spec.drained for host in fleet.hosts.values() if host.obj.name == fleet.host
    )


def _closed_reason(host: StoredHost) -> str:
    """Return the message why nothing new starts on a host; "" if it may."""
    name = host.obj.name
    if host.spec is None:
        return f"host {name}: this version can't read its stored spec; write it with `paddock host uncordon {name}`"
    if host.spec.schedulable and not host.spec.drained and not host.spec.out_of_service:
        return ""
    word = "out of service" if host.spec.out_of_service else "being drained" if host.spec.drained else "cordoned"
    return f"host {name} is {word}: nothing new is started until `paddock host uncordon {name}`"
