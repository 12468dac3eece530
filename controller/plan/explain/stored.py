"""Explanation of an object by what is stored of it: no host has it, or that host is not the one that is asked."""

from collections.abc import Iterator

from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.planning.binding import UNBOUND
from controller.plan.explain.why import Explanation

_TYPES = ("Ready", "Scheduled")  # the loss of a host is written into Ready alone


def explain_stored(obj: StoredObject, host: str) -> Explanation:
    """Return the explanation of an object of another host, or of none (UNBOUND): nothing is decided about it here."""
    found = [each for each in (stored_condition(obj, type_) for type_ in _TYPES) if each]
    said = next((each for each in found if each["status"] != "True"), None)
    if said is not None:
        verdict = "Unknown" if said["status"] == "Unknown" else "Waiting"
        reason, message = said["reason"], said.get("message") or said["reason"]
    elif host == UNBOUND:
        verdict, reason = "Waiting", "NoHost"
        message = "it has no host yet, and nobody has told why: see if a host leads the others (`paddock get hosts`)"
    else:
        verdict, reason = "Unknown", "OtherHost"
        message = f"only the daemon of host `{host}` knows how it is now; see `paddock get hosts`"
    return Explanation(verdict, str(reason), str(message), tuple(_wanted(obj)), tuple(_seen(host)), tuple(_told(obj)))


def _wanted(obj: StoredObject) -> Iterator[tuple[str, str]]:
    if obj.deleted_at is not None:
        yield "deletion", "asked for"
    if obj.spec.get("host"):
        yield "host", str(obj.spec["host"])
    if obj.spec.get("runState"):
        yield "runState", str(obj.spec["runState"])


def _seen(host: str) -> Iterator[tuple[str, str]]:
    yield "host", f"{host}; what follows is what was stored last" if host else "none"


def _told(obj: StoredObject) -> Iterator[tuple[str, str]]:
    for each in obj.status.get("conditions", ()):
        yield str(each["type"]), f"{each['status']} {each['reason']}, since {each['lastTransitionTime']}"
