"""Plugins: their objects are kept as plan/plugin.py wants them, at each change and every half minute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from controller.kinds.meta import Condition, Event, StoredObject
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.plan.base.status_json import dated
from controller.plan.plugin import PluginPlan, plan_plugin, ready_condition
from controller.ports import Clock, Kept, PluginWork, RetryLater, Store, StoreError
from controller.processes.keeper import Keeper

Plugins = Mapping[str, StoredObject]
_AGAIN_SECONDS, _RETRY_SECONDS = 30.0, 1.0


@dataclass(slots=True)
class _Seen:
    generation: int
    due: float


class PluginKeeper(Keeper):
    """Keeps all plugins. `observe_pass` is called after each reconcile pass, and only notifies."""

    name, log_name, failed_seconds = "plugins", "paddock.plugin", _AGAIN_SECONDS
    postponing = (StoreError,)

    def __init__(
        self, store: Store, work: PluginWork, clock: Clock, *, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(may_act)
        self._store, self._work, self._clock = store, work, clock
        self._plugins: Plugins = MappingProxyType({})
        self._seen: dict[str, _Seen] = {}

    def observe_pass(self, plugins: Plugins) -> None:
        """Take in what a reconcile pass has seen."""
        if plugins is not self._plugins:
            self._plugins = plugins
            self.wake()

    def step(self) -> float | None:
        """Keep the plugins that have changed or are due; return seconds until the next is due. Raises StoreError."""
        now, plugins = self._clock.now(), self._plugins
        for uid in self._seen.keys() - plugins.keys():
            del self._seen[uid]
        for uid, obj in plugins.items():
            visit = self._seen.get(uid)
            if obj.deleted_at is None and (visit is None or visit.generation != obj.generation or now >= visit.due):
                self._seen[uid] = _Seen(obj.generation, now + self._keep(obj, now))
        return min((max(0.0, visit.due - now) for visit in self._seen.values()), default=None)

    def _keep(self, obj: StoredObject, now: float) -> float:
        """Keep the objects of one plugin, and store its conditions; return in how many seconds to look again."""
        planned = plan_plugin(obj)
        outcome = Kept()
        wait = _AGAIN_SECONDS
        if planned.documents is not None:
            try:
                outcome = self._work.keep(obj, planned.documents)
            except RetryLater as error:
                outcome, wait = Kept(str(error)), _RETRY_SECONDS
        self._write(obj, planned, ready_condition(planned, outcome.failure, outcome.taken), now)
        return wait

    def _write(self, obj: StoredObject, planned: PluginPlan, ready: Condition, now: float) -> None:
        prior: Mapping[str, Any] = {condition["type"]: condition for condition in obj.status.get("conditions", ())}
        conditions = [
            dated(condition, prior.get(condition.type), obj.generation, now) for condition in (planned.accepted, ready)
        ]
        status = {
            "needed": [{kind: name} for kind, name in planned.needed],
            "conditions": conditions,
        }
        if status == obj.status:
            return
        events = tuple(
            Event(obj.ref, "Warning", condition.reason, condition.message, now)
            for condition in (planned.accepted, ready)
            if condition.status == "False" and prior.get(condition.type, {}).get("message") != condition.message
        )
        self._store.record(Writes(statuses=(StatusWrite(obj.ref, status),), events=events))
