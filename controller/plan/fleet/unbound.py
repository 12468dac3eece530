"""Sandboxes and pools that no host has: they wait for the scheduler, or for a person who writes `spec.host`."""

from collections.abc import Mapping
from typing import Any

from controller.kinds.meta import Condition, StoredObject
from controller.kinds.planning.binding import IMAGE_NEEDED
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.sandbox import FINALIZER
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.status_json import dated
from controller.plan.fleet.placements import ASKED, NO_TEMPLATE

REASON = "NoHost"
_NOTHING_CHOSEN = "it names no host, and the scheduler is `manual`: write `host:` into its spec (`paddock host list`)"
_Waits = Mapping[str, tuple[str, str]] | None


def reconcile_unbound(builder: PlanBuilder) -> None:
    """Add the statuses of the objects without a host. Those that are being deleted own nothing, and are released."""
    for obj in builder.snapshot.fleet.unbound.values():
        if obj.deleted_at is not None:
            if FINALIZER in obj.finalizers:
                builder.finalized.append(obj.ref)
            continue
        if obj.kind == "SandboxPool" and builder.snapshot.fleet.waits is not None:
            continue  # plan/fleet/spread.py
        why = _why(obj, builder.snapshot.fleet.waits, untemplated=obj.uid in builder.snapshot.fleet.untemplated)
        status = _status(obj, builder.snapshot.now, why)
        if status != obj.status:
            builder.statuses.append(StatusWrite(obj.ref, status))


def _status(obj: StoredObject, now: float, why: tuple[str, str]) -> dict[str, Any]:
    """Return the status of an object that waits for a host; what binds it to a container stays."""
    prior = {condition["type"]: condition for condition in obj.status.get("conditions", ())}
    conditions = [Condition(type_, "False", *why) for type_ in ("Ready", "Scheduled")]
    fields = {name: obj.status[name] for name in ("binding", IMAGE_NEEDED) if name in obj.status}
    return {
        "observedGeneration": obj.generation,
        "conditions": [dated(condition, prior.get(condition.type), obj.generation, now) for condition in conditions],
        **fields,
    }


def _why(obj: StoredObject, waits: _Waits, *, untemplated: bool) -> tuple[str, str]:
    """Return reason and message. Without its template no host could start it: that is said first."""
    if waits is None:
        return NO_TEMPLATE if untemplated else (REASON, _NOTHING_CHOSEN)
    return waits.get(obj.uid, ASKED)
