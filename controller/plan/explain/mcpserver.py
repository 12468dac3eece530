"""Explanation of an MCP server: its limits by trust, the state of its sessions, and what they wait for."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from controller.kinds.mcpserver import MCPServerSpec, is_sandboxed, ready_condition, state_word
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import status_word
from controller.plan.explain.why import Explanation, Facts
from controller.policy.mcpserver import image_of, limits_of

_VERDICTS: Mapping[str, str] = MappingProxyType(
    {
        "Answering": "AsAsked",
        "Unused": "AsAsked",
        "Disabled": "AsAsked",
        "ToolsChanged": "Refused",
        "InstallFailed": "Refused",
        "DockerUnavailable": "Unknown",
    }
)
_UNUSED = "nobody has used it yet; its first call starts it"


def explain(obj: StoredObject, spec: MCPServerSpec, sessions: Sequence[StoredObject], blind: str) -> Explanation:
    """Return the explanation of a server. `sessions` are its sandboxes, `blind` is why the engine is not observable."""
    state, ready = state_word(obj), ready_condition(obj)
    return Explanation(
        verdict=_VERDICTS.get(state, "Waiting"),
        reason=state,
        message=str(ready.get("message") or _UNUSED),
        desired=tuple(_desired_facts(spec)),
        observed=tuple(_observed_facts(obj, sessions, blind)),
        remembered=_remembered_facts(obj),
    )


def _desired_facts(spec: MCPServerSpec) -> Iterator[tuple[str, str]]:
    """Yield what the server's spec asks for."""
    limits = limits_of(spec)
    yield "enabled", "yes" if spec.enabled else "no"
    yield "trust", f"{spec.trust}: {limits.memory} memory, {limits.cpu} cpu, {limits.pids} pids"
    yield "image", image_of(spec) or "none"
    yield (
        "network",
        "every public host" if spec.network.is_open else ", ".join(spec.network.allowed_hosts) or "none at all",
    )
    for name, rule in (("tools", spec.tools), ("prompts", spec.prompts), ("resources", spec.resources)):
        denied = f", but {', '.join(rule.deny)}" if rule.deny else ""
        yield name, f"{', '.join(rule.allow) or 'none'}{denied}"
    yield "sandbox", spec.sandbox
    if spec.warm_replicas:
        yield "warm sandboxes", str(spec.warm_replicas)


def _observed_facts(obj: StoredObject, sessions: Sequence[StoredObject], blind: str) -> Iterator[tuple[str, str]]:
    """Yield what is observed of the server and its sessions."""
    if blind:
        yield "engine", f"not observable: {blind}"
    yield "sandboxed", "yes" if is_sandboxed(obj) else "no: it runs as a user's own process"
    tools = obj.status.get("tools", {})
    if "count" in tools:
        yield "tools", f"{tools['count']}, {tools.get('leftOut', 0)} left out"
    if "protocol" in obj.status:
        yield "protocol", str(obj.status["protocol"])
    for session in sessions:
        yield "session", f"sandbox/{session.name} is {status_word(session)}"
    if not sessions:
        yield "session", "none"


def _remembered_facts(obj: StoredObject) -> Facts:
    tools = obj.status.get("tools", {})
    digests = (("pinned tools", tools.get("digest")), ("changed tools", tools.get("changedDigest")))
    changes = ((f"tool {change['change']}", _change(change)) for change in tools.get("changes", ()))
    return tuple((name, str(value)) for name, value in (*digests, *changes) if value)


def _change(change: Mapping[str, str]) -> str:
    """Return a change of a tool in one line."""
    described = " ".join(change["description"].split())
    return f"{change['tool']}: {described}" if described else change["tool"]
