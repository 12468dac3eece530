"""Statuses of providers: the gateway's last word about each."""

from typing import Any

from controller.kinds.meta import Condition, Event
from controller.kinds.observed.models import ANSWERING, NOT_TRIED, ModelsState
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.provider import READY, StoredProvider, condition_of
from controller.plan.base.memo import ProvidersKey
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.status_json import dated

_UNREADABLE = ModelsState("Unreadable", "this version can't read its spec; apply it again")


def reconcile_providers(builder: PlanBuilder) -> None:
    """Add the status of every provider whose stored status differs, and an event if it is newly not ready."""
    snapshot, memo = builder.snapshot, builder.memo
    key = ProvidersKey(snapshot.models.providers, snapshot.models.gateway.providers)
    if not snapshot.models.providers or memo.providers == key:
        return
    writes = []
    for uid, provider in snapshot.models.providers.items():
        state = snapshot.models.gateway.providers.get(uid) if provider.spec is not None else _UNREADABLE
        new_status = _status(provider, state, snapshot.now) if state is not None else provider.obj.status
        if new_status == provider.obj.status:
            continue
        writes.append(StatusWrite(provider.obj.ref, new_status))
        prior, ready = condition_of(provider.obj), new_status["conditions"][0]
        if ready["status"] == "False" and prior.get("reason") != ready["reason"]:
            builder.events.append(Event(provider.obj.ref, "Warning", ready["reason"], ready["message"], snapshot.now))
    builder.statuses += writes
    memo.providers = None if writes else key


def ready_condition(state: ModelsState) -> Condition:
    """Return the Ready condition of a source of models in this state."""
    if state.reason == ANSWERING:
        return Condition(READY, "True", ANSWERING, state.message)
    if state.reason == NOT_TRIED:
        return Condition(READY, "Unknown", NOT_TRIED, state.message)
    return Condition(READY, "False", state.reason, state.message)


def _status(provider: StoredProvider, state: ModelsState, now: float) -> dict[str, Any]:
    generation, prior = provider.obj.generation, condition_of(provider.obj)
    return {
        "observedGeneration": generation,
        "conditions": [dated(ready_condition(state), prior or None, generation, now)],
    }
