"""Apply: check, merge and admit every document before the first write, in one transaction."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import structlog
from pydantic import ValidationError

from controller.documents.document import Document, find_duplicates, parse, without_nulls
from controller.documents.yaml_tree import REST_UNREPORTED, ValueBudget
from controller.kinds.common.problem import MOST_PROBLEMS, Problem
from controller.kinds.envelope import DEFAULT_NAMESPACE, too_large
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.kinds.securityprofile import KIND as PROFILE
from controller.ports import Meter, NullMeter, Transaction
from controller.service import errors
from controller.service.access.access import require_documents
from controller.service.objects.apply_set import NO_SET, ApplySet
from controller.service.objects.image_volumes import ImageVolumes
from controller.service.objects.merge import merge, without_older_defaults
from controller.service.objects.normalize import Normal, normalise
from controller.service.objects.owners import sent_references
from controller.service.objects.pipeline import PendingWrite, Pipeline, WriteTransaction, with_spec
from controller.service.parsing import check_turn

if TYPE_CHECKING:
    from controller.documents.compose.compose import Composed, Project

Result = Literal["created", "configured", "unchanged", "pruned"]

_log = structlog.get_logger("paddock.apply")
_COUNTED = "paddock_apply_objects_total"
_MANY = 50
_SEEN = ("spec", "labels", "annotations", "owner_references")


@dataclass(frozen=True, slots=True)
class Source:
    """A spec file: its name, for messages, and its text. With `compose` it is a Compose file."""

    file: str
    text: str
    compose: "Project | None" = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of one document. `write`: the stored object changed."""

    kind: Kind
    obj: StoredObject
    result: Result
    write: bool


class _DryRun(Exception):
    """Raised to roll back the transaction of a dry run."""


class Apply:
    """The use-case. `meter` counts objects by result, and refused requests. `image_volumes` are for Compose files."""

    def __init__(
        self, pipeline: Pipeline, meter: Meter | None = None, image_volumes: ImageVolumes | None = None
    ) -> None:
        self._pipeline, self._meter, self._image_volumes = pipeline, meter or NullMeter(), image_volumes

    def apply(
        self,
        sources: Sequence[Source],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        as_set: ApplySet = NO_SET,
        replaces: bool = False,
        applied_by: str = "",
    ) -> list[Applied]:
        """Apply files; return the results in the order of their documents, then the pruned objects.

        `replaces`: a document replaces its object, and what it leaves out is removed.

        Raises Invalid with every problem of every document, Conflict, or ServiceUnavailable; nothing is written then.
        """
        as_set.check()
        check_turn(*(source.text for source in sources))
        if any(source.compose is not None for source in sources):
            as_set = replace(as_set, project_in=namespace or DEFAULT_NAMESPACE)
        with _count_refusals(self._meter):
            documents = self._read(sources, namespace, as_set)
        applied: list[Applied] = []
        counted = _count_refusals(self._meter)
        with suppress(_DryRun), counted, self._pipeline.transaction() as writing:
            pending, problems, conflicts = self._decide(writing, documents, as_set, replaces=replaces)
            if problems and not (as_set.prune and len(pending) == len(documents)):
                raise errors.invalid([*problems, *conflicts])
            stored = writing.put(pending, claim=not dry_run and not problems)
            pruned, refusals = as_set.pruned(
                writing.transaction,
                self._pipeline.registry,
                self._pipeline.clock.now(),
                {document.key: document for document in documents},
            )
            if problems:  # the objects were put only to learn what refuses pruning, too; nothing is committed
                raise errors.invalid([*problems, *conflicts, *refusals])
            if conflicts or refusals:
                raise _conflict([*conflicts, *refusals])
            answer_objects = [write.obj for write in pending] if dry_run else stored
            applied = [*map(_applied_result, pending, answer_objects), *map(self._pruned_result, pruned)]
            if dry_run:
                raise _DryRun
        if dry_run:
            return applied
        if any(applied_object.write for applied_object in applied):
            self._pipeline.wake()
        for applied_object in applied:
            self._meter.count(_COUNTED, kind=applied_object.kind.name, result=applied_object.result)
            if applied_object.result != "unchanged":
                _log.info(
                    applied_object.result,
                    object=str(applied_object.obj.ref),
                    generation=applied_object.obj.generation,
                    by=applied_by,
                )
        return applied

    def _pruned_result(self, obj: StoredObject) -> Applied:
        kind = self._pipeline.registry.by_name(obj.kind)
        assert kind is not None, "only objects of known kinds are pruned"
        return Applied(kind, obj, "pruned", write=True)

    def _read(self, sources: Sequence[Source], namespace: str | None, as_set: ApplySet) -> list[Document]:
        documents: list[Document] = []
        problems: list[Problem] = []
        budget = ValueBudget()
        for source in sources:
            if len(problems) >= MOST_PROBLEMS:
                problems.append(Problem(source.file, 0, 0, "", REST_UNREPORTED))
                break
            parsed, wrong = self._parse(source, namespace, budget)
            documents += parsed
            problems += wrong
        problems += find_duplicates(documents)
        if problems:
            raise errors.invalid(problems)
        require_documents(documents)
        as_set.check_documents(documents)
        if not documents and not as_set.prune:
            names = ", ".join(source.file for source in sources) or "the request"
            raise errors.BadRequest(f"there is no document in {names}; write one, or name another file")
        return documents

    def _parse(
        self, source: Source, namespace: str | None, budget: ValueBudget
    ) -> tuple[list[Document], list[Problem]]:
        registry = self._pipeline.registry
        if source.compose is None:
            return parse(source.file, source.text, registry, namespace=namespace, budget=budget)
        compose_file = self.read_compose(source.file, source.text, source.compose, namespace, budget)
        return compose_file.documents, compose_file.problems

    def read_compose(
        self, file: str, text: str, project: "Project", namespace: str | None, budget: ValueBudget | None = None
    ) -> "Composed":
        """Return the documents of a Compose file, with volumes where its images on this host declare some."""
        from controller.documents.compose.compose import read_compose  # most daemons are never sent one

        registry = self._pipeline.registry
        compose_file = read_compose(file, text, registry, project, namespace=namespace, budget=budget)
        if compose_file.problems or self._image_volumes is None:
            return compose_file
        completed = self._image_volumes.complete(project, compose_file)
        if completed is None:
            return compose_file
        return read_compose(file, text, registry, completed, namespace=namespace)

    def _decide(
        self, writing: WriteTransaction, documents: Sequence[Document], as_set: ApplySet, *, replaces: bool
    ) -> tuple[list[PendingWrite], list[Problem], list[Problem]]:
        """Return the writes of the valid documents, all problems, and the conflicts with stored objects."""
        transaction = writing.transaction
        problems: list[Problem] = []
        conflicts: list[Problem] = []
        pending: list[PendingWrite] = []
        for place, count in Counter(document.key[:2] for document in documents).items():
            if count >= _MANY:
                transaction.list(*place)  # one query, which the transaction remembers, instead of one for each
        writing.read_ahead(documents)
        writing.use_profiles(self._profiles(transaction, documents, replaces=replaces))
        for original in documents:
            if len(problems) + len(conflicts) >= MOST_PROBLEMS:
                problems.append(original.problem((), REST_UNREPORTED))
                break
            current = transaction.get(*original.key)
            document, set_conflicts = as_set.membership(original, current)
            set_conflicts += _conflicts(original, current)
            conflicts += set_conflicts
            if set_conflicts:
                continue
            spec, wrong = writing.admit(document, _merged_spec(document, current, replaces=replaces), document.text)
            problems += wrong
            if spec is not None:
                obj = as_set.member(_laid_over(writing, document, current, spec, replaces=replaces))
                problems += _annotated(document, current, obj)
                pending.append(PendingWrite(document, current, obj))
        pending, wrong = writing.resolve_owners(pending, merge=True)
        problems += wrong
        if not problems and not conflicts:
            problems += writing.quota_problems(pending)
        return pending, problems, conflicts

    def _profiles(
        self, transaction: Transaction, documents: Sequence[Document], *, replaces: bool
    ) -> Iterator[StoredObject]:
        """Yield the security profiles among the documents: the other documents are admitted by them."""
        for document in documents:
            if document.kind.name == PROFILE.name:
                with suppress(ValidationError):  # reported with its document
                    merged = _merged_spec(document, transaction.get(*document.key), replaces=replaces)
                    spec = normalise(document.kind, merged)
                    yield StoredObject(PROFILE.name, "", document.name, uid="", spec=spec.stored)


@contextmanager
def _count_refusals(meter: Meter) -> Iterator[None]:
    """Count a request that is refused as a whole."""
    try:
        yield
    except errors.Invalid:
        meter.count(_COUNTED, kind="", result="invalid")
        raise
    except errors.Conflict:
        meter.count(_COUNTED, kind="", result="conflict")
        raise


def _annotated(document: Document, current: StoredObject | None, obj: StoredObject) -> Iterator[Problem]:
    """Yield a problem if changed annotations are too large together with the stored ones."""
    if (current is None or obj.annotations != current.annotations) and (message := too_large(obj.annotations)):
        yield document.problem(("metadata", "annotations"), message)


def _applied_result(pending: PendingWrite, answer_object: StoredObject) -> Applied:
    """Return the result of one document; `answer_object` is its object in the answer."""
    kind, current = pending.target.kind, pending.current
    if current is None:
        return Applied(kind, answer_object, "created", write=True)
    same_seen = all(getattr(pending.obj, name) == getattr(current, name) for name in _SEEN)
    return Applied(kind, answer_object, "unchanged" if same_seen else "configured", write=pending.obj != current)


def _conflict(problems: Sequence[Problem]) -> errors.Conflict:
    return errors.refusal_of(errors.Conflict, "nothing was changed", problems)


def _section(last_applied: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    section: Any = last_applied or {}
    for name in names:
        section = section.get(name, {})
    return section  # type: ignore[no-any-return]


def _merged_spec(document: Document, current: StoredObject | None, *, replaces: bool) -> dict[str, Any]:
    if replaces:
        return dict(without_nulls(document.spec))
    if current is None:
        return merge({}, document.spec, {})
    live = without_older_defaults(current.spec, _section(current.last_applied, "olderDefaults"))
    return merge(_section(current.last_applied, "spec"), document.spec, live)


def _laid_over(
    writing: WriteTransaction, document: Document, current: StoredObject | None, spec: Normal, *, replaces: bool
) -> StoredObject:
    """Return the stored object with the document merged into it, or the new object."""
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
        return writing.new_object(document, spec, last_applied=sent)
    if replaces:
        names = sent["metadata"]
        return with_spec(document.kind, current, spec, labels=names["labels"], annotations=names["annotations"])
    labels = _section(current.last_applied, "metadata", "labels")
    annotations = _section(current.last_applied, "metadata", "annotations")
    return with_spec(
        document.kind,
        current,
        spec,
        labels=merge(labels, document.labels, current.labels),
        annotations=merge(annotations, document.annotations, current.annotations),
        last_applied=sent,
    )


def _conflicts(document: Document, current: StoredObject | None) -> list[Problem]:
    """Return the conflicts of a document with its stored object."""
    version, uid = document.resource_version, document.uid
    subject = f"{document.kind.name.lower()}/{document.name}"
    if current is None:
        if version or uid:
            path = ("metadata", "resourceVersion" if version else "uid")
            return [document.problem(path, f"{subject} no longer exists; remove this line to create it again")]
        return []
    if current.deleted_at is not None:
        text = f"{subject} is being deleted; wait (`paddock wait --for=delete {subject}`), then apply again"
        return [document.problem(("metadata", "name"), text)]
    if uid and uid != current.uid:
        text = f"{subject} was deleted and recreated since; remove this line to change the new one"
        return [document.problem(("metadata", "uid"), text)]
    if version and version != str(current.resource_version):
        text = f"{subject} was changed since (it is at {current.resource_version}); read it again, or remove this line"
        return [document.problem(("metadata", "resourceVersion"), text)]
    return []
