"""Who asks, and whether they may: what every use-case and every door agrees on.

The caller of a request is known to everything that runs for it (a context variable, as a trace id would be). Where
there is none, Paddock itself acts: the loop, and code that is no door.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from controller.documents.document import Document
from controller.kinds.access.access import Ask, Caller, Decision, Verb
from controller.kinds.base import Model
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, Registry
from controller.policy.access import decide, refusals
from controller.policy.levels.levels import Policy
from controller.service import errors
from controller.service.objects.admission import Admit, Profiles, knowing_profiles

_CALLER: ContextVar[Caller | None] = ContextVar("paddock_caller", default=None)
Refused = list[tuple[Ask, str]]
_REFUSED: ContextVar[Refused | None] = ContextVar("paddock_refused", default=None)
_MOST_NOTED = 20


@contextmanager
def acting(caller: Caller | None) -> Iterator[Refused]:
    """Everything inside is done for this caller. Gives the list of what they were refused, which fills meanwhile."""
    refused: Refused = []
    tokens = _CALLER.set(caller), _REFUSED.set(refused)
    try:
        yield refused
    finally:
        _CALLER.reset(tokens[0])
        _REFUSED.reset(tokens[1])


def note(ask: Ask, why: str) -> None:
    """Have a refusal of the caller's told to the audit."""
    noted = _REFUSED.get()
    if noted is not None and len(noted) < _MOST_NOTED:
        noted.append((ask, why))


def caller() -> Caller | None:
    """Who asks; None: Paddock itself."""
    return _CALLER.get()


def decision(ask: Ask) -> Decision:
    """Whether whoever asks may do this."""
    asking = caller()
    return Decision(True) if asking is None else decide(asking, ask)


def may(ask: Ask) -> bool:
    """Whether whoever asks may do this; a refusal is noted for the audit."""
    found = decision(ask)
    if not found.allowed:
        note(ask, found.reason)
    return found.allowed


def require(ask: Ask, registry: Registry) -> None:
    """Raise unless the caller may do this. What they may not even see is answered as what is not there."""
    found = decision(ask)
    if found.allowed:
        return
    note(ask, found.reason)
    kind = registry.by_name(ask.kind)
    if found.hidden and kind is not None and ask.name:
        raise not_found(kind, ask.namespace or "", ask.name)
    raise errors.Forbidden(found.reason, kind=kind.plural if kind else ask.verb, name=ask.name)


def not_found(kind: Kind, namespace: str, name: str) -> errors.NotFound:
    """In the words of kubectl, with the namespace, since that is what people get wrong."""
    where = f" in namespace `{namespace}`" if kind.namespaced else ""
    return errors.NotFound(f"{kind.plural} `{name}` not found{where}", kind=kind.plural, name=name)


def require_documents(documents: Iterable[Document], *, verb: Verb = "update") -> None:
    """Raise Forbidden, with every reason, unless the caller may write all of these. Nothing stored was looked at."""
    wrong = []
    for each in documents:
        ask = Ask(verb, each.kind.name, each.namespace, each.name)
        found = decision(ask)
        if not found.allowed:
            note(ask, found.reason)
            wrong.append(each.problem(("metadata", "namespace" if each.kind.namespaced else "name"), found.reason))
    if wrong:
        raise errors.refused(errors.Forbidden, "nothing was changed", wrong)


def require_objects(objects: Iterable[StoredObject], verb: Verb) -> None:
    """Raise Forbidden unless the caller may do this to all of these; does not tell which ones they may not see."""
    for each in objects:
        ask = Ask(verb, each.kind, each.namespace, each.name)
        found = decision(ask)
        if not found.allowed:
            note(ask, found.reason)
            told = "some of these objects are where you may not do this" if found.hidden else found.reason
            raise errors.Forbidden(f"nothing was changed: {told}")


def bounding(admit: Admit, policy: Callable[[], Policy] = Policy) -> Admit:
    """The same admission, and what the caller's own grants say of the spec."""
    policy_with = knowing_profiles()

    def admit_for_caller(
        kind: Kind, spec: Model, namespace: str, name: str, profiles: Profiles
    ) -> list[tuple[str, str]]:
        found = list(admit(kind, spec, namespace, name, profiles))
        asking = caller()
        if asking is not None:
            beyond = refusals(asking, kind, spec, namespace, policy_with(policy(), profiles))
            if beyond:
                fields = ", ".join(each.field for each in beyond)
                note(Ask("update", kind.name, namespace, name), f"more than is granted: {fields}")
            found += [(each.field, each.message) for each in beyond]
        return found

    return admit_for_caller
