"""Rules of `spec.host` and `spec.nodeSelector`: who may choose the host, and that it is fixed once there is one."""

from collections.abc import Collection, Mapping

from controller.kinds.host import NAME
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import BOUND_KINDS, UNBOUND, host_of
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal

_FIELD = "spec.host"


def refusals(host: str | None, policy: Policy) -> tuple[Refusal, ...]:
    """Return the refusal of a host that can't be there."""
    if host is None or policy.scheduler != "single" or host == NAME:
        return ()
    message = (
        f"there is one host, `{NAME}`; leave this out, or see `scheduler` and `host_name` in the daemon's settings"
    )
    return (Refusal(_FIELD, message),)


def unknown(host: str, known_hosts: Collection[str]) -> tuple[Refusal, ...]:
    """Return the refusal of a host that is none of the known ones."""
    if host in known_hosts:
        return ()
    return (Refusal(_FIELD, f"there is no host `{host}`; known: {', '.join(sorted(known_hosts)) or 'none'}"),)


def selector_refused(selector: Mapping[str, str], policy: Policy) -> tuple[Refusal, ...]:
    """Return the refusal of a selector that nobody would follow."""
    if not selector or policy.scheduler == "swarm":
        return ()
    message = f"no scheduler chooses hosts here (`scheduler` is {policy.scheduler}); leave this out"
    return (Refusal("spec.nodeSelector", message),)


def loss_refused(reaction: str | None, host: str | None, policy: Policy) -> tuple[Refusal, ...]:
    """Return the refusal of a sandbox that is to be started on another host, where nobody would choose one."""
    if reaction != "Recreate":
        return ()
    if policy.scheduler != "swarm":
        message = f"no scheduler chooses hosts here (`scheduler` is {policy.scheduler}); leave this out, or write Stay"
        return (Refusal("spec.onHostLoss", message),)
    if host is not None:
        return (Refusal("spec.onHostLoss", f"`host: {host}` keeps it there; leave one of the two out"),)
    return ()


def move_refusals(current: StoredObject | None, obj: StoredObject, default: str) -> tuple[Refusal, ...]:
    """Return the refusal of a change to another host. `default` is the host of objects that name none ("": none)."""
    if current is None or obj.kind not in BOUND_KINDS:
        return ()
    bound, requested = host_of(current, default), obj.spec.get("host") or UNBOUND
    if bound == UNBOUND or requested in (UNBOUND, bound):
        return ()
    message = (
        f"is on host `{bound}`, and can't move: write `host: {bound}`, or delete it and create it on `{requested}`"
    )
    return (Refusal(_FIELD, message),)
