"""Explanation of an object's state: the planner runs again for one object of the last snapshot. Writes nothing.

Of an object that no host has, or another one, what is stored is told.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.common.quantity import format_bytes
from controller.kinds.mcpserver import KIND as MCPSERVER
from controller.kinds.mcpserver import SESSION_LABEL, MCPServerSpec
from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import FolderUse
from controller.kinds.registry import Kind
from controller.kinds.sandbox import KIND as SANDBOX
from controller.plan.explain import mcpserver
from controller.plan.explain.stored import explain_stored
from controller.plan.explain.why import Explanation, explain
from controller.policy.host.health import NEAR
from controller.policy.levels.levels import Policy
from controller.policy.profiles import as_seen
from controller.ports import Clock, Store
from controller.ports.fleet import SINGLE, Fleet
from controller.service import errors
from controller.service.exec.agent_calls import AgentHealth
from controller.service.explain.diff import LastSnapshot
from controller.service.listing import serialize
from controller.service.objects.objects import Objects
from controller.service.sources.event import event_object
from controller.version import API_VERSION

_EVENTS = 10
_UNHEALTHY = "Unhealthy"
Facts = tuple[tuple[str, str], ...]
MemoryFolders = Callable[[Container], Sequence[FolderUse]]
_OF_EVENTS = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp")


def _failed_probe(events: Sequence[Event]) -> Facts:
    """Return the probe for which a run was stopped last, if that was lately."""
    failures = [event for event in events if event.reason == _UNHEALTHY]
    return (("failed probe", f"{failures[-1].message}, at {serialize.timestamp(failures[-1].at)}"),) if failures else ()


def no_folders(_: Container) -> Sequence[FolderUse]:
    """Return no in-memory folders: none can be read from here."""
    return ()


@dataclass(frozen=True, slots=True)
class Reasons:
    """The object, the explanation as of `at` (Unix seconds), and its latest events, newest last."""

    obj: StoredObject
    at: float
    explanation: Explanation
    events: Sequence[StoredObject]


class Why:
    """The use-case. `snapshot` gives the last one that the loop planned on, None before the first."""

    def __init__(
        self,
        *,
        objects: Objects,
        store: Store,
        clock: Clock,
        snapshot: LastSnapshot,
        policy: Policy | None = None,
        agent: Callable[[StoredObject], AgentHealth] = lambda _: AgentHealth(),
        contexts: Callable[[StoredObject], Facts] = lambda _: (),
        folders: MemoryFolders = no_folders,
        place: Fleet = SINGLE,
    ) -> None:
        """`agent` asks a sandbox's agent for its health. `folders` reads a container's in-memory ones.

        `contexts` returns what to say of a sandbox's code contexts, as its agent tells of them. `place` is this host
        among others.
        """
        self._agent, self._folders, self._place = agent, folders, place
        self._contexts = contexts
        self._objects, self._store, self._clock, self._snapshot = objects, store, clock, snapshot
        self._policy = policy or Policy()

    def why(self, kind: Kind, namespace: str, name: str) -> Reasons:
        """Explain one object. Raises NotFound; ServiceUnavailable for one of this host before the loop's first pass."""
        obj, now = self._objects.get(kind, namespace, name), self._clock.now()
        is_own = self._place.is_own(obj)
        explanation = self._explain(obj, now) if is_own else explain_stored(obj, self._place.host_of(obj))
        with errors.translate_store_errors():
            events = self._store.events(uid=obj.uid, limit=_EVENTS)
        explanation = replace(explanation, remembered=(*explanation.remembered, *_failed_probe(events)))
        return Reasons(obj, now, explanation, [event_object(event) for event in events])

    def _explain(self, obj: StoredObject, now: float) -> Explanation:
        last = self._snapshot()
        if last is None or last.observed.revision == 0:
            raise errors.ServiceUnavailable("the daemon has not observed the engine yet; try again in a moment")
        policy = as_seen(self._policy, last)
        explanation = explain(replace(last, now=now), obj.uid, policy)
        health = self._agent(obj)
        facts = _with_agent(explanation.observed, health.message)
        contexts = () if health.silent else self._contexts(obj)
        full = [
            fact for container in last.observed.containers.get(obj.uid, ()) for fact in _full(self._folders(container))
        ]
        return replace(explanation, observed=(*facts, *contexts, *full))

    def why_server(self, namespace: str, name: str) -> Reasons:
        """Explain an MCP server. Raises NotFound; Conflict if its stored spec can't be read."""
        obj, last = self._objects.get(MCPSERVER, namespace, name), self._snapshot()
        try:
            spec = MCPServerSpec.model_validate(obj.spec)
        except ValidationError:
            raise errors.Conflict(f"mcpserver `{name}`: this version can't read its spec; apply it again") from None
        labelled = self._objects.list(SANDBOX, namespace, labels=SESSION_LABEL).objects
        sessions = [sandbox for sandbox in labelled if obj.uid in owner_uids(sandbox)]
        explanation = mcpserver.explain(
            obj, spec, sessions, last.observed.blind if last is not None else "not observed yet"
        )
        with errors.translate_store_errors():
            events = self._store.events(uid=obj.uid, limit=_EVENTS)
        return Reasons(obj, self._clock.now(), explanation, [event_object(event) for event in events])


def _full(folders: Sequence[FolderUse]) -> Iterator[tuple[str, str]]:
    """Yield the in-memory folders that are full, or nearly so."""
    for folder in folders:
        if folder.share >= NEAR:
            files = " (too many files)" if folder.files >= NEAR else ""
            use = f"{format_bytes(folder.used_bytes)} of {format_bytes(folder.size_bytes)}"
            action = "delete files in it, or give it a larger `size`"
            yield "in-memory folder", f"`{folder.path}` is {folder.share:.0%} full{files}: {use}; {action}"


def _with_agent(facts: Facts, health: str) -> Facts:
    """Return the facts with the agent's health; "" without an agent."""
    if not any(name == "agent" for name, _ in facts):
        return (*facts, ("agent", health or "none"))
    return tuple((name, f"{value}, {health}" if name == "agent" and health else value) for name, value in facts)


def as_json(reasons: Reasons) -> serialize.Json:
    """Return the explanation as the API shows it."""
    explanation = reasons.explanation
    until = None if explanation.until is None else serialize.timestamp(explanation.until)
    wait = None if explanation.until is None else round(max(0.0, explanation.until - reasons.at), 3)
    return {
        "apiVersion": API_VERSION,
        "kind": "Why",
        "metadata": serialize.metadata(reasons.obj),
        "time": serialize.timestamp(reasons.at),
        "verdict": explanation.verdict,
        "reason": explanation.reason,
        "message": explanation.message,
        "underWay": explanation.under_way,
        **({} if until is None else {"until": until, "waitSeconds": wait}),
        "wanted": _facts(explanation.desired),
        "seen": _facts(explanation.observed),
        "remembered": _facts(explanation.remembered),
        "calls": [{"call": str(action), "why": action.why} for action in explanation.actions],
        "events": [{name: event.spec[name] for name in _OF_EVENTS} for event in reasons.events],
    }


def _facts(facts: tuple[tuple[str, str], ...]) -> list[serialize.Json]:
    return [{"name": name, "value": value} for name, value in facts]
