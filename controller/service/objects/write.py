"""Creating and replacing one object, as POST and PUT do: no merge, and a replacement must know what it replaces."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog
from pydantic import ValidationError

from controller.documents.document import Document, parse, without_nulls
from controller.documents.error_messages import faults
from controller.kinds.common.problem import field_path
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.registry import Kind, Registry
from controller.ports import Clock, Store, Transaction, Wake
from controller.service import errors
from controller.service.objects.apply import Admit
from controller.service.objects.claims import Claims
from controller.service.objects.normalize import Normal, normalise, same
from controller.service.objects.objects import not_found
from controller.service.objects.owners import Owners
from controller.service.objects.profiles import profiles_in
from controller.service.objects.quota import Facts, Fitting

_FILE = "body"
_log = structlog.get_logger("paddock.write")


class Write:
    """The use-cases. A body is the text of one document; what only Paddock sets (status, uid ...) is not taken over."""

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
    ) -> None:
        self._most_objects = most_objects
        self._claims, self._facts = claims, facts
        self._store, self._registry, self._admit = store, registry, admit
        self._wake, self._clock, self._new_uid = wake, clock, new_uid

    def create(self, kind: Kind, namespace: str, body: str, *, written_by: str = "") -> StoredObject:
        """The new object. Raises AlreadyExists, Invalid with every reason, BadRequest, or ServiceUnavailable."""
        document = self._read(kind, namespace, body)
        if document.resource_version or document.uid:
            raise errors.BadRequest("resourceVersion and uid are given by the server; leave them out to create")
        with errors.store_in_words(), self._store.transaction() as transaction:
            wanted = self._wanted(transaction, document)
            if transaction.get(*document.key) is not None:
                text = f"{kind.plural} `{document.name}` already exists"
                raise errors.AlreadyExists(text, kind=kind.plural, name=document.name)
            made = self._fitting(transaction, document, self._new(document, wanted))
            made = self._claims.claim(transaction, made)
            stored = transaction.put(self._owned(transaction, document, made, None))
        self._told("created", stored, written_by)
        return stored

    def replace(self, kind: Kind, namespace: str, name: str, body: str, *, written_by: str = "") -> StoredObject:
        """The object with the body's spec, labels, annotations and owners instead of its own; its status stays.

        Raises NotFound, Conflict when it was changed since, Invalid with every reason, BadRequest, or
        ServiceUnavailable.
        """
        document = self._read(kind, namespace, body)
        if document.name != name:
            raise errors.BadRequest(f"the body is of `{document.name}`, the path of `{name}`; make them agree")
        if not document.resource_version:
            path = ("metadata", "resourceVersion")
            text = "is required to replace an object; read the object, change that, and send it back"
            raise errors.invalid([document.problem(path, text)])
        with errors.store_in_words(), self._store.transaction() as transaction:
            wanted = self._wanted(transaction, document)
            current = transaction.get(*document.key)
            if current is None:
                raise not_found(kind, namespace, name)
            _check_current(document, current)
            replaced = self._fitting(transaction, document, _replaced(document, current, wanted))
            stored = transaction.put(self._owned(transaction, document, replaced, current))
        if stored.resource_version != current.resource_version:
            self._told("replaced", stored, written_by)
        return stored

    def _fitting(self, transaction: Transaction, document: Document, obj: StoredObject) -> StoredObject:
        """The object, unless it asks for what its quotas can never give: then Invalid."""
        refusals = list(Fitting(transaction, [obj], self._facts(), self._most_objects).refusals(obj))
        if refusals:
            raise errors.invalid([document.problem(field_path(field), message) for field, message in refusals])
        return obj

    def _read(self, kind: Kind, namespace: str, body: str) -> Document:
        documents, problems = parse(_FILE, body, self._registry, namespace=namespace or None)
        if problems:
            raise errors.invalid(problems)
        if len(documents) != 1:
            raise errors.BadRequest(f"the body must be one {kind.name}, not {len(documents) or 'nothing'}")
        (document,) = documents
        if document.kind.name != kind.name:
            raise errors.BadRequest(f"the body is a {document.kind.name}, and the path is of {kind.plural}")
        return document

    def _wanted(self, transaction: Transaction, document: Document) -> Normal:
        try:
            wanted = normalise(document.kind, without_nulls(document.spec))
        except ValidationError as error:
            found = faults(document.kind.spec, error, ("spec",), document.text)
            raise errors.invalid([document.problem(each.path, each.message) for each in found]) from error
        profiles = profiles_in(transaction)
        refusals = list(self._admit(document.kind, wanted.model, document.namespace, document.name, profiles))
        if refusals:
            raise errors.invalid([document.problem(field_path(field), message) for field, message in refusals])
        return wanted

    def _new(self, document: Document, wanted: Normal) -> StoredObject:
        return StoredObject(
            kind=document.kind.name,
            namespace=document.namespace,
            name=document.name,
            uid=self._new_uid(),
            spec=wanted.stored,
            created_at=self._clock.now(),
            labels=_plain(document.labels),
            annotations=_plain(document.annotations),
            finalizers=document.kind.finalizers,
        )

    def _owned(
        self, transaction: Transaction, document: Document, obj: StoredObject, current: StoredObject | None
    ) -> StoredObject:
        owners = Owners(transaction, self._registry, {document.key: obj})
        owned = owners.replaced(document, current)
        owners.check_cycles([document])
        if owners.problems:
            raise errors.invalid(owners.problems)
        return owned

    def _told(self, what: str, stored: StoredObject, written_by: str) -> None:
        self._wake()
        _log.info(what, object=str(stored.ref), generation=stored.generation, by=written_by)


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = without_nulls(dict(found))
    return plain


def _check_current(document: Document, current: StoredObject) -> None:
    """Raises Conflict unless the body was made from the object as it is."""
    word = f"{current.kind.lower()}/{current.name}"
    if document.uid and document.uid != current.uid:
        raise errors.Conflict(f"{word} was deleted and created anew since; read it again")
    if document.resource_version != str(current.resource_version):
        text = f"{word} was changed since (it is at {current.resource_version}); read it again, then replace it"
        raise errors.Conflict(text)
    if current.deleted_at is not None:
        raise errors.Conflict(f"{word} is being deleted; wait until it is gone, then create it anew")


def _replaced(document: Document, current: StoredObject, wanted: Normal) -> StoredObject:
    unmoved = same(document.kind, current.spec, wanted)
    return replace(
        current,
        spec=current.spec if unmoved else wanted.stored,
        generation=current.generation + (not unmoved),
        labels=_plain(document.labels),
        annotations=_plain(document.annotations),
    )
