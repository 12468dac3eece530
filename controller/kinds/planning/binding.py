"""Binding: the host that runs a sandbox, or keeps a pool. A host's daemon plans only what is bound to it."""

from controller.kinds.host import NAME
from controller.kinds.meta import StoredObject

UNBOUND = ""
PENDING = "pendingReservation"  # in a status: why the scheduler has not reserved what it needs now
IMAGE_NEEDED = "imageNeeded"  # in a status: the image for which a host gave it back, as a reference
BOUND_KINDS = ("Sandbox", "SandboxPool")


def host_of(obj: StoredObject, default: str = NAME) -> str:
    """Return the name of the host that the object is bound to; `default` is that of one without a host of its own.

    The status counts first: a claim binds a sandbox to the host of the warm one that it takes over.
    """
    return str(obj.status.get("host") or obj.spec.get("host") or default)


def binding_of(obj: StoredObject) -> int:
    """Return the number of hosts that the object was bound to by the scheduler; 0: none."""
    return int(obj.status.get("binding") or 0)


def pending_words(obj: StoredObject) -> str:
    """Return why the scheduler has not reserved on the object's host what it needs now; "" if it has."""
    return str(obj.status.get(PENDING) or "")


def default_host(scheduler: str) -> str:
    """Return the host of objects that name none: the only one there is; UNBOUND if a person or a scheduler chooses."""
    return NAME if scheduler == "single" else UNBOUND
