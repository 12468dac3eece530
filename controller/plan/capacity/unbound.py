"""Sandboxes and pools that no host has: with scheduler `manual` they wait until a person writes `spec.host`."""

from typing import Any

from controller.kinds.meta import Condition, StoredObject
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.sandbox import FINALIZER
from controller.plan.common.plan_builder import PlanBuilder
from controller.plan.common.status_json import dated

REASON = "NoHost"
_NOTHING_CHOSEN = "it names no host, and the scheduler is `manual`: write `host:` into its spec (`paddock host list`)"


def reconcile_unbound(builder: PlanBuilder) -> None:
    """Add the statuses of the objects without a host. Those that are being deleted own nothing, and are released."""
    for obj in builder.snapshot.unbound.values():
        if obj.deleted_at is not None:
            if FINALIZER in obj.finalizers:
                builder.finalized.append(obj.ref)
            continue
        status = _status(obj, builder.snapshot.now)
        if status != obj.status:
            builder.statuses.append(StatusWrite(obj.ref, status))


def _status(obj: StoredObject, now: float) -> dict[str, Any]:
    prior = {each["type"]: each for each in obj.status.get("conditions", ())}
    made = [Condition(type_, "False", REASON, _NOTHING_CHOSEN) for type_ in ("Ready", "Scheduled")]
    return {
        "observedGeneration": obj.generation,
        "conditions": [dated(each, prior.get(each.type), obj.generation, now) for each in made],
    }
