"""The caller of a request, and authorization.

The caller is a context variable, visible to all code that runs for the request. Without one, Paddock itself acts: the
loop, and all code outside of requests.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from controller.documents.document import Document
from controller.kinds.access.access import AccessRequest, Caller, Decision, Verb
from controller.kinds.base import Model
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, Registry
from controller.policy.access import decide, decide_server, refusals
from controller.policy.levels.levels import Policy
from controller.service import errors
from controller.service.admission import Admit, Profiles, cached_policy

# In a request's state: its identity, if another daemon has forwarded it. In its scope: why forwarding it has failed.
FORWARDED, FAILURE_KEY = "forwarded", "paddock.failure"
_CALLER: ContextVar[Caller | None] = ContextVar("paddock_caller", default=None)
Refused = list[tuple[AccessRequest, str]]
_REFUSED: ContextVar[Refused | None] = ContextVar("paddock_refused", default=None)
_MOST_NOTED = 20


@contextmanager
def acting(caller: Caller | None) -> Iterator[Refused]:
    """Run the block for this caller. Yields the list of their refusals, which grows meanwhile."""
    refusal_log: Refused = []
    tokens = _CALLER.set(caller), _REFUSED.set(refusal_log)
    try:
        yield refusal_log
    finally:
        _CALLER.reset(tokens[0])
        _REFUSED.reset(tokens[1])


@contextmanager
def through(tool: str) -> Iterator[None]:
    """Run the block for the caller, who acts through this MCP tool."""
    asking = caller()
    token = _CALLER.set(None if asking is None else replace(asking, tool=tool))
    try:
        yield
    finally:
        _CALLER.reset(token)


def note(ask: AccessRequest, why: str) -> None:
    """Add a refusal of the caller to the audit log."""
    noted = _REFUSED.get()
    if noted is not None and len(noted) < _MOST_NOTED:
        noted.append((ask, why))


def caller() -> Caller | None:
    """Return the caller; None: Paddock itself."""
    return _CALLER.get()


def decision(ask: AccessRequest) -> Decision:
    """Return the decision on this request of the caller."""
    asking = caller()
    return Decision(True) if asking is None else decide(asking, ask)


def server_decision(ask: AccessRequest) -> Decision:
    """Return the decision on the use of any tool of this MCP server."""
    asking = caller()
    return Decision(True) if asking is None else decide_server(asking, ask)


def may(ask: AccessRequest) -> bool:
    """Return True if the caller may do this. A refusal goes to the audit log."""
    verdict = decision(ask)
    if not verdict.allowed:
        note(ask, verdict.reason)
    return verdict.allowed


def require(ask: AccessRequest, registry: Registry) -> None:
    """Raise Forbidden unless the caller may do this. Objects they may not read are NotFound."""
    _require(decision(ask), ask, registry)


def require_server(ask: AccessRequest, registry: Registry) -> None:
    """Raise Forbidden or NotFound unless the caller may use any tool of this MCP server."""
    _require(server_decision(ask), ask, registry)


def _require(verdict: Decision, ask: AccessRequest, registry: Registry) -> None:
    if verdict.allowed:
        return
    note(ask, verdict.reason)
    kind = registry.by_name(ask.kind)
    if verdict.hidden and kind is not None and ask.name:
        raise not_found(kind, ask.namespace or "", ask.name)
    raise errors.Forbidden(verdict.reason, kind=kind.plural if kind else ask.verb, name=ask.name)


def not_found(kind: Kind, namespace: str, name: str) -> errors.NotFound:
    """Return kubectl's message with the namespace, which is the usual mistake."""
    where = f" in namespace `{namespace}`" if kind.namespaced else ""
    return errors.NotFound(f"{kind.plural} `{name}` not found{where}", kind=kind.plural, name=name)


def require_documents(documents: Iterable[Document], *, verb: Verb = "update") -> None:
    """Raise Forbidden, with every reason, unless the caller may write all of these. Reads nothing stored."""
    problems = []
    for document in documents:
        ask = AccessRequest(verb, document.kind.name, document.namespace, document.name)
        verdict = decision(ask)
        if not verdict.allowed:
            note(ask, verdict.reason)
            problems.append(
                document.problem(("metadata", "namespace" if document.kind.namespaced else "name"), verdict.reason)
            )
    if problems:
        raise errors.refusal_of(errors.Forbidden, "nothing was changed", problems)


def require_objects(objects: Iterable[StoredObject], verb: Verb) -> None:
    """Raise Forbidden unless the caller may do this to all of these. Does not reveal unreadable objects."""
    for obj in objects:
        ask = AccessRequest(verb, obj.kind, obj.namespace, obj.name)
        verdict = decision(ask)
        if not verdict.allowed:
            note(ask, verdict.reason)
            message = (
                "you may not do this in the namespaces of some of these objects" if verdict.hidden else verdict.reason
            )
            raise errors.Forbidden(f"nothing was changed: {message}")


def bounding(admit: Admit, policy: Callable[[], Policy] = Policy) -> Admit:
    """Return admission that also applies the limits of the caller's grants."""
    policy_with = cached_policy()

    def admit_for_caller(
        kind: Kind, spec: Model, namespace: str, name: str, profiles: Profiles
    ) -> list[tuple[str, str]]:
        messages = list(admit(kind, spec, namespace, name, profiles))
        asking = caller()
        if asking is not None:
            beyond = refusals(asking, kind, spec, namespace, policy_with(policy(), profiles))
            if beyond:
                fields = ", ".join(refusal.field for refusal in beyond)
                note(AccessRequest("update", kind.name, namespace, name), f"more than is granted: {fields}")
            messages += [(refusal.field, refusal.message) for refusal in beyond]
        return messages

    return admit_for_caller
