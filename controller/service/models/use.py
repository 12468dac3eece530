"""Use of models: budgets, and what each sandbox took of them today (UTC)."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from controller.kinds import modelserver, provider
from controller.kinds.access.audit import AuditEntry
from controller.kinds.meta import StoredObject
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.provider import condition_of, stored_provider
from controller.ports import Audit
from controller.service.listing import serialize
from controller.service.objects.objects import Objects
from controller.version import API_VERSION

SOURCES = (provider.KIND, modelserver.KIND)
_REACHABLE = "ModelsReachable"
_VERB, _MINUTE, _DAY = "models", 60, 86_400
_WELL = "ok"  # outcome of a request that was answered
# Use of budgets by the uid of their source: {"seconds": {end of a second: requests}, "day": number, "tokens": count}.
BudgetUse = Callable[[], Mapping[str, Mapping[str, Any]]]
# Names of sandboxes with the reason of their condition, by kind, namespace and name of a source.
_Named = Mapping[tuple[str, str, str], Sequence[tuple[str, str]]]


@dataclass(slots=True)
class Taken:
    """Use of one source by one user today. `names_it`: a sandbox whose spec does; `reachable` is why it can, or not."""

    names_it: bool = False
    reachable: str = ""
    requests: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class SourceUse:
    """Use of one source of models. `since` is when counting `users` began (Unix seconds), by (kind, name)."""

    obj: StoredObject
    requests_last_minute: int
    tokens_today: int
    since: float
    reset_at: float
    users: Mapping[tuple[str, str], Taken] = field(default_factory=dict)


class ModelUse:
    """The use-case. `budgets` is set once the gateway is there. Thread-safe."""

    def __init__(self, objects: Objects, snapshot: Callable[[], Snapshot | None]) -> None:
        self._objects, self._snapshot, self._lock = objects, snapshot, threading.Lock()
        self.budgets: BudgetUse = dict
        self._since = objects.now()
        self._day = int(self._since // _DAY)
        self._taken: dict[tuple[str, str], dict[tuple[str, str], Taken]] = {}

    def counted(self, audit: Audit) -> Audit:
        """Return the audit log; what is appended to it about models is counted here, too."""
        return cast("Audit", _CountingAudit(audit, self._count))

    def every(self, namespace: str | None) -> Sequence[SourceUse]:
        """Return the use of each source of a namespace (None: of all), by kind, namespace and name."""
        now, budgets = self._objects.now(), self.budgets()
        sources = [source for kind in SOURCES for source in self._objects.list(kind, namespace).objects]
        naming_sandboxes = _sandboxes_by_source(self._snapshot()) if sources else {}
        with self._lock:
            self._forget(now)
            return [self._of(source, budgets.get(source.uid, {}), naming_sandboxes, now) for source in sources]

    def _of(self, obj: StoredObject, budget: Mapping[str, Any], naming_sandboxes: _Named, now: float) -> SourceUse:
        seconds: Mapping[str, int] = budget.get("seconds", {})
        recent = sum(count for end, count in seconds.items() if now - _MINUTE < int(end) <= now + 1)
        tokens = int(budget.get("tokens", 0)) if budget.get("day") == self._day else 0
        users = {who: replace(taken_use) for who, taken_use in self._taken.get((obj.namespace, obj.name), {}).items()}
        for name, reachable in naming_sandboxes.get((obj.kind, obj.namespace, obj.name), ()):
            users["Sandbox", name] = replace(users.get(("Sandbox", name), Taken()), names_it=True, reachable=reachable)
        return SourceUse(
            obj, recent, tokens_today=tokens, since=self._since, reset_at=float((self._day + 1) * _DAY), users=users
        )

    def _count(self, entries: Sequence[AuditEntry]) -> None:
        now = self._objects.now()
        with self._lock:
            self._forget(now)
            for entry in entries:
                if entry.verb == _VERB:
                    self._add(entry)

    def _add(self, entry: AuditEntry) -> None:
        by_token = entry.kind == provider.KIND.name  # a request on the host, that no sandbox made
        who = ("Token", entry.actor) if by_token else (entry.kind, entry.name)
        source = (entry.namespace, str(entry.detail["provider"]))
        use = self._taken.setdefault(source, {}).setdefault(who, Taken())
        for outcome, count in entry.detail["requests"].items():
            use.requests += count
            use.failed += 0 if outcome == _WELL else count
        use.tokens_in += entry.detail["tokensIn"]
        use.tokens_out += entry.detail["tokensOut"]

    def _forget(self, now: float) -> None:
        today = int(now // _DAY)
        if today != self._day:
            self._day, self._since, self._taken = today, now, {}


class _CountingAudit:
    """A wrapper of `append`; all else is delegated."""

    def __init__(self, audit: Audit, count: Callable[[Sequence[AuditEntry]], None]) -> None:
        self._audit, self._count = audit, count

    def append(self, entries: Sequence[AuditEntry]) -> None:
        self._audit.append(entries)
        self._count(entries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._audit, name)


def _sandboxes_by_source(snapshot: Snapshot | None) -> _Named:
    """Return the sandboxes that name each source, with the reason of their condition."""
    naming_sandboxes: defaultdict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for sandbox in snapshot.desired.sandboxes.values() if snapshot is not None else ():
        for source in sandbox.spec.models if sandbox.spec is not None else ():
            kind, ref = (
                (provider.KIND.name, source.provider_ref)
                if source.provider_ref is not None
                else (modelserver.KIND.name, source.model_server_ref)
            )
            if ref is not None:
                reason = str(condition_of(sandbox.obj, _REACHABLE).get("reason", ""))
                naming_sandboxes[kind, sandbox.obj.namespace, ref.name].append((sandbox.obj.name, reason))
    return naming_sandboxes


def as_json(use: SourceUse) -> serialize.Json:
    """Return the use of a source as the API shows it."""
    obj = use.obj
    spec = stored_provider(obj).spec if obj.kind == provider.KIND.name else None
    limits = spec.limits if spec is not None else None
    ready = condition_of(obj)
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelUse",
        "metadata": serialize.metadata(obj),
        "source": {"kind": obj.kind, "name": obj.name},
        "models": list(spec.models) if spec is not None else [obj.name] if obj.kind == modelserver.KIND.name else [],
        "ready": {each: str(ready.get(each, "")) for each in ("status", "reason", "message")},
        "requestsLastMinute": use.requests_last_minute,
        "requestsPerMinute": limits.requests_per_minute if limits else None,
        "tokensToday": use.tokens_today,
        "tokensPerDay": limits.tokens_per_day if limits else None,
        "concurrent": limits.concurrent if limits else None,
        "resetTime": serialize.timestamp(use.reset_at),
        "since": serialize.timestamp(use.since),
        "users": [
            {
                "kind": kind,
                "name": name,
                "namesIt": each.names_it,
                "reachable": each.reachable,
                "requests": each.requests,
                "failed": each.failed,
                "tokensIn": each.tokens_in,
                "tokensOut": each.tokens_out,
            }
            for (kind, name), each in sorted(use.users.items())
        ],
    }
