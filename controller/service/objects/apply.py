"""Apply: every document is checked, merged and admitted before the first write; one transaction, all or nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog
from pydantic import ValidationError

from controller.documents.document import Document, parse, repeated, without_nulls
from controller.documents.error_messages import faults
from controller.documents.yaml_tree import REST_UNTOLD, Room
from controller.kinds.base import Model
from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.common.problem import MOST_PROBLEMS, Problem, field_path
from controller.kinds.envelope import too_large
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.registry import Kind, Registry
from controller.kinds.securityprofile import KIND as PROFILE
from controller.ports import Clock, Meter, NullMeter, Store, Transaction, Wake
from controller.service import errors
from controller.service.access.access import require_documents
from controller.service.objects.apply_metrics import refusals_counted, tell_result
from controller.service.objects.apply_set import NO_SET, ApplySet
from controller.service.objects.claims import Claims
from controller.service.objects.merge import merge
from controller.service.objects.normalize import Normal, normalise, same
from controller.service.objects.owners import Owners, sent_references
from controller.service.objects.profiles import Profiles, profiles_in
from controller.service.objects.quota import Facts, Fitting

# What policy says of a spec: (field path such as `spec.template.user`, message), for every reason to refuse it.
Admit = Callable[[Kind, Model, str, str, Profiles], Iterable[tuple[str, str]]]
Result = Literal["created", "configured", "unchanged", "pruned"]

_log = structlog.get_logger("paddock.apply")
_MANY = 50
_SEEN = ("spec", "labels", "annotations", "owner_references")


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


class _DryRun(Exception):
    """Ends the transaction of a dry run: nothing of it is kept."""


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
        facts: Facts = HostFacts,
        most_objects: int = 0,
        meter: Meter | None = None,
    ) -> None:
        self._most_objects = most_objects
        self._claims, self._facts, self._meter = claims, facts, meter or NullMeter()
        self._store, self._registry, self._admit = store, registry, admit
        self._wake, self._clock, self._new_uid = wake, clock, new_uid

    def apply(
        self,
        sources: Sequence[Source],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        as_set: ApplySet = NO_SET,
        applied_by: str = "",
    ) -> list[Applied]:
        """Apply files; the answer is in the order of their documents, and then what was pruned.

        Raises Invalid with every problem of every document, Conflict, or ServiceUnavailable; then nothing was written.
        """
        as_set.check()
        with refusals_counted(self._meter):
            documents = self._read(sources, namespace, as_set)
        applied: list[Applied] = []
        counted = refusals_counted(self._meter)
        with suppress(_DryRun), counted, errors.store_in_words(), self._store.transaction() as transaction:
            decided, problems, conflicts = self._decide(transaction, documents, as_set)
            if problems and not (as_set.prune and len(decided) == len(documents)):
                raise errors.invalid([*problems, *conflicts])
            stored = self._written(transaction, decided, claim=not dry_run and not problems)
            pruned, refused = as_set.pruned(
                transaction, self._registry, self._clock.now(), {each.key: each for each in documents}
            )
            if problems:  # what was put is taken back: it only told what speaks against pruning, too
                raise errors.invalid([*problems, *conflicts, *refused])
            if conflicts or refused:
                raise _conflict([*conflicts, *refused])
            applied = [*(decided if dry_run else stored), *map(self._pruned, pruned)]
            if dry_run:
                raise _DryRun
        if dry_run:
            return applied
        if any(each.write for each in applied):
            self._wake()
        for each in applied:
            tell_result(self._meter, each.kind.name, each.result)
            if each.result != "unchanged":
                _log.info(each.result, object=str(each.obj.ref), generation=each.obj.generation, by=applied_by)
        return applied

    def _written(self, transaction: Transaction, applied: Sequence[Applied], *, claim: bool) -> list[Applied]:
        """All that has to be is put. New sandboxes come last: what they may claim depends on templates and pools."""
        put: dict[int, Applied] = {}
        owners = {uid for each in applied for uid in owner_uids(each.obj)}  # known by their uids already: no claims
        for at, each in sorted(enumerate(applied), key=lambda pair: pair[1].result == "created"):
            new = claim and each.result == "created" and each.obj.uid not in owners
            obj = self._claims.claim(transaction, each.obj) if new else each.obj
            put[at] = replace(each, obj=transaction.put(obj)) if each.write else each
        return [put[at] for at in range(len(applied))]

    def _pruned(self, obj: StoredObject) -> Applied:
        kind = self._registry.by_name(obj.kind)
        assert kind is not None, "only objects of known kinds are pruned"
        return Applied(kind, obj, "pruned", write=True)

    def _read(self, sources: Sequence[Source], namespace: str | None, as_set: ApplySet) -> list[Document]:
        documents: list[Document] = []
        problems: list[Problem] = []
        room = Room()
        for each in sources:
            if len(problems) >= MOST_PROBLEMS:
                problems.append(Problem(each.file, 0, 0, "", REST_UNTOLD))
                break
            found, wrong = parse(each.file, each.text, self._registry, namespace=namespace, room=room)
            documents += found
            problems += wrong
        problems += repeated(documents)
        if problems:
            raise errors.invalid(problems)
        require_documents(documents)
        as_set.check_documents(documents)
        if not documents and not as_set.prune:
            names = ", ".join(each.file for each in sources) or "the request"
            raise errors.BadRequest(f"there is no document in {names}; write one, or name another file")
        return documents

    def _decide(
        self, transaction: Transaction, documents: Sequence[Document], as_set: ApplySet
    ) -> tuple[list[Applied], list[Problem], list[Problem]]:
        """What becomes of the documents that can be read; all problems; and why some do not fit what is stored."""
        now = self._clock.now()
        problems: list[Problem] = []
        conflicts: list[Problem] = []
        applied: list[Applied] = []
        fitting: list[tuple[Document, StoredObject | None]] = []
        for place, count in Counter(each.key[:2] for each in documents).items():
            if count >= _MANY:
                transaction.list(*place)  # one query, which the transaction remembers, instead of one for each
        profiles = profiles_in(transaction, self._profiles(transaction, documents))
        for each in documents:
            if len(problems) + len(conflicts) >= MOST_PROBLEMS:
                problems.append(each.problem((), REST_UNTOLD))
                break
            current = transaction.get(*each.key)
            document, refused = as_set.membership(each, current)
            refused += _conflicts(each, current)
            conflicts += refused
            if refused:
                continue
            wanted, wrong = self._wanted(document, current, profiles)
            problems += wrong
            if wanted is not None:
                made = self._applied(document, current, wanted, now, as_set)
                problems += _annotated(document, current, made.obj)
                fitting.append((document, current))
                applied.append(made)
        applied, wrong = self._owned(transaction, fitting, applied)
        problems += wrong
        if not problems and not conflicts:
            problems += self._unfitting(transaction, documents, applied)
        return applied, problems, conflicts

    def _owned(
        self,
        transaction: Transaction,
        fitting: Sequence[tuple[Document, StoredObject | None]],
        applied: Sequence[Applied],
    ) -> tuple[list[Applied], list[Problem]]:
        """The same with their owners, or what speaks against those."""
        owners = Owners(transaction, self._registry, {d.key: a.obj for (d, _), a in zip(fitting, applied, strict=True)})
        owned = []
        for (document, current), each in zip(fitting, applied, strict=True):
            owned.append(_told(each.kind, owners.merged(document, current), current))
        owners.check_cycles([document for document, _ in fitting])
        return owned, owners.problems

    def _unfitting(
        self, transaction: Transaction, documents: Sequence[Document], applied: Sequence[Applied]
    ) -> Iterator[Problem]:
        """A problem for each document that asks for what its quotas can never give."""
        fitting = Fitting(transaction, [each.obj for each in applied], self._facts(), self._most_objects)
        for document, each in zip(documents, applied, strict=True):
            for field, message in fitting.refusals(each.obj):
                yield document.problem(field_path(field), message)

    def _profiles(self, transaction: Transaction, documents: Sequence[Document]) -> Iterator[StoredObject]:
        """The security profiles among the documents: the others are admitted by them as they will be."""
        for each in documents:
            if each.kind.name == PROFILE.name:
                with suppress(ValidationError):  # told when it is its turn
                    wanted = normalise(each.kind, _merged_spec(each, transaction.get(*each.key)))
                    yield StoredObject(PROFILE.name, "", each.name, uid="", spec=wanted.stored)

    def _wanted(
        self, document: Document, current: StoredObject | None, profiles: Profiles
    ) -> tuple[Normal | None, list[Problem]]:
        """The merged spec, checked and admitted, or all that speaks against it."""
        kind = document.kind
        try:
            wanted = normalise(kind, _merged_spec(document, current))
        except ValidationError as error:
            found = faults(kind.spec, error, ("spec",), document.text)
            return None, [document.problem(each.path, each.message) for each in found]
        refusals = self._admit(kind, wanted.model, document.namespace, document.name, profiles)
        return wanted, [document.problem(field_path(field), message) for field, message in refusals]

    def _applied(
        self, document: Document, current: StoredObject | None, wanted: Normal, now: float, as_set: ApplySet
    ) -> Applied:
        sent: dict[str, Any] = {
            "metadata": {
                "labels": without_nulls(document.labels),
                "annotations": without_nulls(document.annotations),
            },
            "spec": without_nulls(document.spec),
        }
        if document.owner_references:
            sent["metadata"]["ownerReferences"] = sent_references(document)
        if current is None:
            obj = self._created(document, wanted, sent, now)
        else:
            obj = _merged(document, current, wanted, sent)
        return _told(document.kind, as_set.member(obj), current)

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


def _annotated(document: Document, current: StoredObject | None, obj: StoredObject) -> Iterator[Problem]:
    """A problem where its annotations and those that it has already are too large together."""
    if (current is None or obj.annotations != current.annotations) and (words := too_large(obj.annotations)):
        yield document.problem(("metadata", "annotations"), words)


def _told(kind: Kind, obj: StoredObject, current: StoredObject | None) -> Applied:
    """What becomes of an object that was `current`."""
    if current is None:
        return Applied(kind, obj, "created", write=True)
    same_seen = all(getattr(obj, name) == getattr(current, name) for name in _SEEN)
    return Applied(kind, obj, "unchanged" if same_seen else "configured", write=obj != current)


def _conflict(problems: Sequence[Problem]) -> errors.Conflict:
    return errors.refused(errors.Conflict, "nothing was changed", problems)


def _section(last_applied: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    found: Any = last_applied or {}
    for name in names:
        found = found.get(name, {})
    return found  # type: ignore[no-any-return]


def _merged_spec(document: Document, current: StoredObject | None) -> dict[str, Any]:
    last = _section(current.last_applied, "spec") if current else {}
    return merge(last, document.spec, current.spec if current else {})


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
