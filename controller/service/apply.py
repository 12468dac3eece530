"""Apply: every document is checked, merged and admitted before the first write; one transaction, all or nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog
from pydantic import ValidationError

from controller.kinds.base import Model
from controller.kinds.document import Document, parse, repeated, without_nulls
from controller.kinds.meta import StoredObject
from controller.kinds.problem import Problem, field_path
from controller.kinds.registry import Kind, Registry
from controller.kinds.wording import faults
from controller.ports import Clock, Store, Transaction, Wake
from controller.service import errors
from controller.service.claims import Claims
from controller.service.merge import merge
from controller.service.normal import Normal, normalise, same

# What policy says of a spec: (field path such as `spec.template.user`, message), for every reason to refuse it.
Admit = Callable[[Kind, Model, str, str], Iterable[tuple[str, str]]]
Result = Literal["created", "configured", "unchanged"]

_log = structlog.get_logger("paddock.apply")
_MANY = 50


@dataclass(frozen=True, slots=True)
class Source:
    """A spec file as it was sent: its name, for messages, and its text."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one document. `write` says whether the store has to be told."""

    kind: Kind
    obj: StoredObject
    result: Result
    write: bool


class Apply:
    """The use-case. `new_uid` makes the uid of a new object; `wake` is called once, after the commit."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        admit: Admit,
        wake: Wake,
        clock: Clock,
        new_uid: Callable[[], str],
        claims: Claims,
    ) -> None:
        self._claims = claims
        self._store, self._registry, self._admit = store, registry, admit
        self._wake, self._clock, self._new_uid = wake, clock, new_uid

    def apply(
        self, sources: Sequence[Source], *, namespace: str | None = None, dry_run: bool = False, applied_by: str = ""
    ) -> list[Applied]:
        """Apply files; the answer is in the order of their documents.

        Raises Invalid with every problem of every document, Conflict, or ServiceUnavailable; then nothing was written.
        """
        documents = self._read(sources, namespace)
        with errors.store_in_words(), self._store.transaction() as transaction:
            applied = self._decide(transaction, documents)
            if dry_run:
                return applied
            applied = self._written(transaction, applied)
        if any(each.write for each in applied):
            self._wake()
        for each in applied:
            if each.result != "unchanged":
                _log.info(each.result, object=str(each.obj.ref), generation=each.obj.generation, by=applied_by)
        return applied

    def _written(self, transaction: Transaction, applied: Sequence[Applied]) -> list[Applied]:
        """All that has to be is put. New sandboxes come last: what they may claim depends on templates and pools."""
        put: dict[int, Applied] = {}
        for at, each in sorted(enumerate(applied), key=lambda pair: pair[1].result == "created"):
            obj = self._claims.claim(transaction, each.obj) if each.result == "created" else each.obj
            put[at] = replace(each, obj=transaction.put(obj)) if each.write else each
        return [put[at] for at in range(len(applied))]

    def _read(self, sources: Sequence[Source], namespace: str | None) -> list[Document]:
        documents: list[Document] = []
        problems: list[Problem] = []
        for each in sources:
            found, wrong = parse(each.file, each.text, self._registry, namespace=namespace)
            documents += found
            problems += wrong
        problems += repeated(documents)
        if problems:
            raise errors.invalid(problems)
        if not documents:
            names = ", ".join(each.file for each in sources) or "the request"
            raise errors.BadRequest(f"there is no document in {names}; write one, or name another file")
        return documents

    def _decide(self, transaction: Transaction, documents: Sequence[Document]) -> list[Applied]:
        now = self._clock.now()
        problems: list[Problem] = []
        conflicts: list[Problem] = []
        applied: list[Applied] = []
        for place, count in Counter(each.key[:2] for each in documents).items():
            if count >= _MANY:
                transaction.list(*place)  # one query, which the transaction remembers, instead of one for each
        for each in documents:
            current = transaction.get(*each.key)
            refused = _conflicts(each, current)
            conflicts += refused
            if refused:
                continue
            wanted, wrong = self._wanted(each, current)
            problems += wrong
            if wanted is not None and not wrong:
                applied.append(self._applied(each, current, wanted, now))
        if problems:
            raise errors.invalid(problems)
        if conflicts:
            text = "\n".join(str(each) for each in conflicts)
            raise errors.Conflict(f"nothing was changed\n{text}", causes=[errors.cause(each) for each in conflicts])
        return applied

    def _wanted(self, document: Document, current: StoredObject | None) -> tuple[Normal | None, list[Problem]]:
        """The merged spec, checked and admitted, or all that speaks against it."""
        last = _section(current.last_applied, "spec") if current else {}
        spec = merge(last, document.spec, current.spec if current else {})
        kind = document.kind
        try:
            wanted = normalise(kind, spec)
        except ValidationError as error:
            found = faults(kind.spec, error, ("spec",), document.text)
            return None, [document.problem(each.path, each.message) for each in found]
        refusals = self._admit(kind, wanted.model, document.namespace, document.name)
        return wanted, [document.problem(field_path(field), message) for field, message in refusals]

    def _applied(self, document: Document, current: StoredObject | None, wanted: Normal, now: float) -> Applied:
        sent = {
            "metadata": {
                "labels": without_nulls(document.labels),
                "annotations": without_nulls(document.annotations),
            },
            "spec": without_nulls(document.spec),
        }
        if current is None:
            return Applied(document.kind, self._created(document, wanted, sent, now), "created", write=True)
        changed = _merged(document, current, wanted, sent)
        seen = (changed.spec, changed.labels, changed.annotations)
        result: Result = "unchanged" if seen == (current.spec, current.labels, current.annotations) else "configured"
        return Applied(document.kind, changed, result, write=changed != current)

    def _created(self, document: Document, wanted: Normal, sent: Mapping[str, Any], now: float) -> StoredObject:
        return StoredObject(
            kind=document.kind.name,
            namespace=document.namespace,
            name=document.name,
            uid=self._new_uid(),
            spec=wanted.stored,
            created_at=now,
            labels=sent["metadata"]["labels"],
            annotations=sent["metadata"]["annotations"],
            finalizers=document.kind.finalizers,
            last_applied=sent,
        )


def _section(last_applied: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    found: Any = last_applied or {}
    for name in names:
        found = found.get(name, {})
    return found  # type: ignore[no-any-return]


def _merged(document: Document, current: StoredObject, wanted: Normal, sent: Mapping[str, Any]) -> StoredObject:
    """The stored object with the document laid over it. A spec that says the same keeps its stored form."""
    unmoved = same(document.kind, current.spec, wanted)
    labels = _section(current.last_applied, "metadata", "labels")
    annotations = _section(current.last_applied, "metadata", "annotations")
    return replace(
        current,
        spec=current.spec if unmoved else wanted.stored,
        generation=current.generation if unmoved else current.generation + 1,
        labels=merge(labels, document.labels, current.labels),
        annotations=merge(annotations, document.annotations, current.annotations),
        last_applied=sent,
    )


def _conflicts(document: Document, current: StoredObject | None) -> list[Problem]:
    """Why this document does not fit the object that is stored, if it does not."""
    version, uid = document.resource_version, document.uid
    word = f"{document.kind.name.lower()}/{document.name}"
    if current is None:
        if version or uid:
            path = ("metadata", "resourceVersion" if version else "uid")
            return [document.problem(path, f"{word} does not exist any more; remove this line to create it anew")]
        return []
    if current.deleted_at is not None:
        text = f"{word} is being deleted; wait (`paddock wait --for=delete {word}`), then apply again"
        return [document.problem(("metadata", "name"), text)]
    if uid and uid != current.uid:
        text = f"{word} was deleted and created anew since; remove this line to change the new one"
        return [document.problem(("metadata", "uid"), text)]
    if version and version != str(current.resource_version):
        text = f"{word} was changed since (it is at {current.resource_version}); read it again, or remove this line"
        return [document.problem(("metadata", "resourceVersion"), text)]
    return []
