"""State of a sandbox for metrics, from its stored and observed state. Pure."""

from collections.abc import Iterable, Mapping

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, State
from controller.metrics.catalogue.objects import CONDITIONS, HIBERNATED, WAITING_REASONS, WAITING_WORDS

_CRASHING = "CrashLoopBackOff"


def sandbox_state(obj: StoredObject, containers: Iterable[Container]) -> str:
    """Pending, Starting, Running, Suspended, Paused, Hibernated, Failed or Terminating.

    A run that ended well and for good is `Suspended`: stopped, as it is meant to be. A container that was listed
    but could not be read counts as running where the conditions say Ready.
    """
    if obj.deleted_at is not None:
        return "Terminating"
    status, reason = _statuses(obj), _reasons(obj)
    container = max(containers, key=_weight, default=None)
    state = container.state if container else None
    if state is State.PAUSED and container is not None:
        return HIBERNATED if reason.get("Ready") == HIBERNATED or is_hibernated([container]) else "Paused"
    if state is State.RUNNING:
        return "Starting" if status.get("Ready", "False") == "False" else "Running"
    if status.get("Suspended") == "True" or obj.spec.get("runState") == "Suspended":
        return "Suspended"
    if status.get("Finished") == "True":
        return "Suspended" if reason["Finished"] == "Completed" else "Failed"
    if status.get("Accepted") == "False" or status.get("Degraded") == "True" or waiting_reason(obj) == _CRASHING:
        return "Failed"
    if state is State.UNKNOWN and status.get("Ready") == "True":
        return "Running"
    return "Pending" if state in (None, State.UNKNOWN, State.REMOVING) else "Starting"


def is_hibernated(containers: Iterable[Container]) -> bool:
    """Return True if it is frozen, and most of its memory is in swap."""
    memories = (container.frozen_memory for container in containers if container.state is State.PAUSED)
    return any(memory is not None and memory.swapped_bytes > memory.resident_bytes for memory in memories)


def waiting_reason(obj: StoredObject) -> str:
    """Return the reason for which the sandbox waits, if it is one of the catalogue's; else ""."""
    reasons = {
        condition.get("reason") for condition in obj.status.get("conditions", ()) if condition.get("status") != "True"
    }
    reasons |= {exported for word, exported in WAITING_WORDS.items() if word in reasons}
    return next((reason for reason in WAITING_REASONS if reason in reasons), "")


def known_conditions(obj: StoredObject) -> Iterable[tuple[str, bool]]:
    """Return the conditions of the catalogue with status True or False; a network's only if there is one."""
    status = _statuses(obj)
    if _reasons(obj).get("NetworkReady") == "NoNetwork":
        del status["NetworkReady"]
    return [(type_, status[type_] == "True") for type_ in CONDITIONS if status.get(type_) in ("True", "False")]


def _statuses(obj: StoredObject) -> dict[str, str]:
    return {str(condition["type"]): str(condition["status"]) for condition in obj.status.get("conditions", ())}


def _reasons(obj: StoredObject) -> Mapping[str, str]:
    return {str(condition["type"]): str(condition.get("reason", "")) for condition in obj.status.get("conditions", ())}


def _weight(container: Container) -> tuple[bool, float]:
    """Sort key of several containers of one object: a live one first, then the newest."""
    return container.state in (State.RUNNING, State.PAUSED), container.created_at
