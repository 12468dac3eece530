"""Owner references in writes: resolve each owner, check it, and store its uid.

An owner must exist, in the same namespace (or on the host), and not be in deletion. Nothing owns itself, directly or
through others: a deletion could never end. To block an owner's deletion takes the permission to write that owner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from controller.documents.document import Document
from controller.kinds.access.access import AccessRequest
from controller.kinds.common.owner_reference import owner_key
from controller.kinds.common.problem import Path, Problem
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, Registry
from controller.ports import Transaction
from controller.service.access.access import decision, may

Key = tuple[str, str, str]
_PATH = ("metadata", "ownerReferences")


class WriteTarget(Protocol):
    """The source of a write, which may name owners: a document, or an object that is patched."""

    @property
    def kind(self) -> Kind: ...
    @property
    def namespace(self) -> str: ...
    @property
    def key(self) -> Key: ...
    @property
    def owner_references(self) -> Sequence[Mapping[str, Any]]: ...
    def problem(self, path: Path, message: str) -> Problem: ...


def sent_references(document: Document) -> list[dict[str, Any]]:
    """Return the owner references that an apply records as sent."""
    return [{"kind": reference["kind"], "name": reference["name"]} for reference in document.owner_references]


class Owners:
    """Resolves the references of documents against each other and against stored objects."""

    def __init__(self, transaction: Transaction, registry: Registry, desired: Mapping[Key, StoredObject]) -> None:
        """`desired` are the objects of the documents as they are about to be stored."""
        self._transaction, self._registry = transaction, registry
        self._desired = dict(desired)
        self.problems: list[Problem] = []

    def merged(self, document: WriteTarget, current: StoredObject | None) -> StoredObject:
        """Return the object with its document's references merged into those that others added."""
        last = (
            _by_kind_and_name((current.last_applied or {}).get("metadata", {}).get("ownerReferences", ()))
            if current
            else {}
        )
        sent = _by_kind_and_name(document.owner_references)
        stored = _by_kind_and_name(current.owner_references) if current else {}
        remaining = {key: reference for key, reference in stored.items() if key in sent or key not in last}
        return self._with(document, remaining)

    def replaced(self, document: WriteTarget, current: StoredObject | None) -> StoredObject:
        """Return the object with its document's references only."""
        sent = _by_kind_and_name(document.owner_references)
        stored = _by_kind_and_name(current.owner_references) if current else {}
        return self._with(document, {key: reference for key, reference in stored.items() if key in sent})

    def _with(
        self, document: WriteTarget, base_references: Mapping[tuple[str, str], Mapping[str, Any]]
    ) -> StoredObject:
        references = dict(base_references)
        for at, reference in enumerate(document.owner_references):
            resolved = self._resolved(document, reference)
            key = (reference["kind"], reference["name"])
            if not isinstance(resolved, str):
                before = references.get(key, {})
                before = before if before.get("uid") == resolved["uid"] else {}
                resolved = self._blocking(document, before, {**before, **resolved})
            if isinstance(resolved, str):
                self._add_problem(document, at, resolved)
            else:
                references[key] = resolved
        if sum(bool(reference.get("controller")) for reference in references.values()) > 1:
            self._add_problem(document, None, "only one owner may be the controller")
        obj = replace(self._desired[document.key], owner_references=tuple(references.values()))
        self._desired[document.key] = obj
        return obj

    def _resolved(self, document: WriteTarget, reference: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """Return the reference with its owner's uid, or a message with the reason to refuse it."""
        key = owner_key(reference, document.namespace, self._registry)
        if key is None:
            kind_names = ", ".join(kind.name for kind in self._registry)
            return f"`{reference['kind']}` is not a kind; known kinds: {kind_names}"
        subject = f"{key[0].lower()}/{key[2]}"
        kind = self._registry.by_name(key[0])
        if kind is not None and kind.namespaced and not document.kind.namespaced:
            return f"{subject} is namespaced and can't own an object of the host; remove this reference"
        if key == document.key:
            return "an object can't own itself; remove this reference"
        owner = self._at(key)
        if owner is None:
            where = f" in namespace `{key[1]}`" if key[1] else ""
            return f"{subject} does not exist{where}; apply it first, or remove this reference"
        if owner.deleted_at is not None:
            return f"{subject} is being deleted; remove this reference"
        if reference.get("uid") and reference["uid"] != owner.uid:
            return f"{subject} was deleted and recreated since; leave `uid` out to refer to the new one"
        return {**reference, "uid": owner.uid}

    def _blocking(
        self, document: WriteTarget, before: Mapping[str, Any], reference: Mapping[str, Any]
    ) -> Mapping[str, Any] | str:
        """Return the reference; it blocks its owner's deletion only if the caller may write the owner, too."""
        kind, namespace, name = owner_key(reference, document.namespace, self._registry) or ("", None, "")
        blocks, blocked_before = reference.get("blockOwnerDeletion"), before.get("blockOwnerDeletion")
        ask = AccessRequest("update", kind, namespace, name)
        if blocks is False or (before and blocks == blocked_before):
            return reference
        if blocks is None:
            return reference if decision(ask).allowed else {**reference, "blockOwnerDeletion": False}
        if may(ask):
            return reference
        subject = f"{kind.lower()}/{name}"
        return f"blockOwnerDeletion blocks the deletion of {subject}, which you may not write; leave it out"

    def check_cycles(self, documents: Sequence[WriteTarget]) -> None:
        """Add a problem for each document whose object would own itself through others. Call it last."""
        for document in documents:
            if document.owner_references:
                chain = self._cycle(document)
                if chain:
                    self._add_problem(
                        document, None, f"it would own itself: {' is owned by '.join(chain)}; break the cycle"
                    )

    def _cycle(self, document: WriteTarget) -> list[str]:
        """Return the chain of owners from the document's object to itself; empty if there is none."""
        visited: set[Key] = set()
        pending: list[tuple[Key, list[str]]] = [(document.key, [_subject(document.key)])]
        while pending:
            key, chain = pending.pop()
            obj = self._at(key)
            for reference in obj.owner_references if obj else ():
                owner = owner_key(reference, key[1], self._registry)
                if owner == document.key:
                    return [*chain, _subject(owner)]
                if owner is not None and owner not in visited:
                    visited.add(owner)
                    pending.append((owner, [*chain, _subject(owner)]))
        return []

    def _at(self, key: Key) -> StoredObject | None:
        return self._desired.get(key) or self._transaction.get(*key)

    def _add_problem(self, document: WriteTarget, at: int | None, message: str) -> None:
        self.problems.append(document.problem(_PATH if at is None else (*_PATH, at), message))


def _by_kind_and_name(references: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(str(reference.get("kind")), str(reference.get("name"))): reference for reference in references}


def _subject(key: Key) -> str:
    return f"{key[0].lower()}/{key[2]}"
