"""The condition Ready of MCP servers, which no reconcile pass writes: sessions and installs report it."""

from collections.abc import Mapping
from typing import Any, Literal

import structlog

from controller.kinds.mcpserver import KIND, READY, ready_condition
from controller.kinds.meta import Condition, Event, StoredObject
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.plan.common.status_json import dated
from controller.ports import Clock, Store, StoreError

_PROGRESS = ("Installing", "Installed")
_log = structlog.get_logger("paddock.mcp")


class Reporter:
    """Stores conditions of servers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def report(self, server: StoredObject, ready: Condition, parts: Mapping[str, Any] | None = None) -> None:
        """Store the condition Ready of a server, with an event if its reason is new. A failing store is only logged."""
        try:
            current = self._store.get(KIND.name, server.namespace, server.name)
            if current is None or current.uid != server.uid:
                return
            prior, now = ready_condition(current), self._clock.now()
            made = dated(ready, prior or None, server.generation, now)
            others = [each for each in current.status.get("conditions", ()) if each.get("type") != READY]
            status = {**current.status, **(parts or {}), "conditions": [*others, made]}
            events: tuple[Event, ...] = ()
            if ready.status != "True" and (prior.get("reason"), prior.get("message")) != (ready.reason, ready.message):
                is_progress = ready.reason in _PROGRESS
                type_: Literal["Normal", "Warning"] = "Normal" if is_progress else "Warning"
                events = (Event(current.ref, type_, ready.reason, ready.message, now),)
                if not is_progress:
                    _log.warning("mcp server not ready", object=str(current.ref), reason=ready.reason)
            self._store.record(Writes(statuses=(StatusWrite(current.ref, status),), events=events))
        except StoreError as error:
            _log.warning("status write failed", object=str(server.ref), error=str(error))
