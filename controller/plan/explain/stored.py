"""Explanation of an object by what is stored of it: no host has it, or that host is not the one that is asked."""

from collections.abc import Iterator

from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.planning.binding import UNBOUND
from controller.plan.explain.why import Explanation

_TYPES = ("Ready", "Scheduled")  # the loss of a host is written into Ready alone


def explain_stored(obj: StoredObject, host: str) -> Explanation:
    """Return the explanation of an object of another host, or of none (UNBOUND): nothing is decided about it here."""
    conditions = [condition for condition in (stored_condition(obj, type_) for type_ in _TYPES) if condition]
    condition = next((stored for stored in conditions if stored["status"] != "True"), None)
    if condition is not None:
        verdict = "Unknown" if condition["status"] == "Unknown" else "Waiting"
        reason, message = condition["reason"], condition.get("message") or condition["reason"]
    elif host == UNBOUND:
        verdict, reason = "Waiting", "NoHost"
        message = "it has no host yet, and nobody has told why: see if a host leads the others (`paddock get hosts`)"
    else:
        verdict, reason = "Unknown", "OtherHost"
        message = f"only the daemon of host `{host}` knows how it is now; see `paddock get hosts`"
    return Explanation(
        verdict,
        str(reason),
        message=str(message),
        desired=tuple(_desired_facts(obj)),
        observed=tuple(_observed_facts(host)),
        remembered=tuple(_reported_facts(obj)),
    )


def _desired_facts(obj: StoredObject) -> Iterator[tuple[str, str]]:
    if obj.deleted_at is not None:
        yield "deletion", "asked for"
    if obj.spec.get("host"):
        yield "host", str(obj.spec["host"])
    if obj.spec.get("runState"):
        yield "runState", str(obj.spec["runState"])


def _observed_facts(host: str) -> Iterator[tuple[str, str]]:
    yield "host", f"{host}; what follows is what was stored last" if host else "none"


def _reported_facts(obj: StoredObject) -> Iterator[tuple[str, str]]:
    for condition in obj.status.get("conditions", ()):
        yield (
            str(condition["type"]),
            f"{condition['status']} {condition['reason']}, since {condition['lastTransitionTime']}",
        )
