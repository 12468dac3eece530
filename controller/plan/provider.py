"""Statuses of providers: the gateway's last word about each."""

from typing import Any

from controller.kinds.meta import Condition, Event
from controller.kinds.observed.models import ANSWERING, NOT_TRIED, ModelsState
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.provider import READY, StoredProvider, condition_of
from controller.plan.common.plan_builder import PlanBuilder, ProvidersKey
from controller.plan.common.status_json import dated

_UNREADABLE = ModelsState("Unreadable", "this version can't read its spec; apply it again")


def reconcile_providers(builder: PlanBuilder) -> None:
    """Add the status of every provider whose stored status differs, and an event if it is newly not ready."""
    snapshot, memo = builder.snapshot, builder.memo
    key = ProvidersKey(snapshot.providers, snapshot.gateway.providers)
    if not snapshot.providers or memo.providers == key:
        return
    written = []
    for uid, each in snapshot.providers.items():
        found = snapshot.gateway.providers.get(uid) if each.spec is not None else _UNREADABLE
        made = _status(each, found, snapshot.now) if found is not None else each.obj.status
        if made == each.obj.status:
            continue
        written.append(StatusWrite(each.obj.ref, made))
        prior, ready = condition_of(each.obj), made["conditions"][0]
        if ready["status"] == "False" and prior.get("reason") != ready["reason"]:
            builder.events.append(Event(each.obj.ref, "Warning", ready["reason"], ready["message"], snapshot.now))
    builder.statuses += written
    memo.providers = None if written else key


def ready_condition(found: ModelsState) -> Condition:
    """Return the Ready condition of a source of models in this state."""
    if found.reason == ANSWERING:
        return Condition(READY, "True", ANSWERING, found.message)
    if found.reason == NOT_TRIED:
        return Condition(READY, "Unknown", NOT_TRIED, found.message)
    return Condition(READY, "False", found.reason, found.message)


def _status(provider: StoredProvider, found: ModelsState, now: float) -> dict[str, Any]:
    generation, prior = provider.obj.generation, condition_of(provider.obj)
    return {
        "observedGeneration": generation,
        "conditions": [dated(ready_condition(found), prior or None, generation, now)],
    }
