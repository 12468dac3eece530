"""Apply sets, like kubectl's: membership, and pruning of members that are no longer in the files.

An object belongs to one set. It stays a member when it is applied without a set, or patched. It leaves the set when
another set takes it over, or when its label is removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from controller.documents.document import Document
from controller.kinds.common.apply_set import LABEL, ApplySetName, set_of
from controller.kinds.common.problem import Problem
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Registry
from controller.ports import Transaction
from controller.service import errors
from controller.service.access.access import require_objects
from controller.service.objects.cascade import Cascade

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ApplySet:
    """Options of an apply as a set. Without a `name` there is no set, and the others must be off.

    `prune`: delete the members that are not in the files. `take_over`: move members of other sets to this one.
    `allow_empty`: prune even if the files hold no document, which deletes every member.
    `project_in`: the namespace of a Compose project. Its set takes over objects without a set only when asked, too,
    and prunes there alone: whoever may write in another namespace can put this label on objects of theirs.
    """

    name: str = ""
    prune: bool = False
    take_over: bool = False
    allow_empty: bool = False
    project_in: str = ""

    def check(self) -> None:
        """Raise BadRequest for options that exclude each other."""
        if not self.name:
            if self.prune or self.take_over or self.allow_empty:
                text = "pruning and taking over need a set; name it with --applyset NAME (applySet)"
                raise errors.BadRequest(text)
            return
        try:
            ApplySetName(name=self.name)
        except ValidationError as error:
            text = f"`{self.name}` is not a valid apply set name; use at most 52 lower-case letters, digits and `-`"
            raise errors.BadRequest(text) from error
        if self.allow_empty and not self.prune:
            raise errors.BadRequest("--allow-empty (allowEmpty) is only for pruning; add --prune (prune)")

    def check_documents(self, documents: Sequence[Document]) -> None:
        """Raise BadRequest if the files hold no document: a typing mistake must not delete a whole set."""
        if self.prune and not documents and not self.allow_empty:
            text = f"the files hold no document: pruning would delete every object of apply set `{self.name}`"
            raise errors.BadRequest(f"{text}; nothing was changed. To delete them all, add --allow-empty (allowEmpty)")

    def membership(self, document: Document, current: StoredObject | None) -> tuple[Document, list[Problem]]:
        """Return the document without the set's label, and the problems with its membership."""
        stated_set = document.labels.get(LABEL)
        has = set_of(current.labels) if current else ""
        problems = []
        if stated_set and stated_set not in (self.name, has):
            text = f"says `{stated_set}`; only `apply --applyset` puts objects into a set: remove this line"
            problems.append(document.problem(("metadata", "labels", LABEL), text))
        if self.name and has not in ("", self.name) and not self.take_over:
            text = (
                f"{document.kind.name.lower()}/{document.name} belongs to apply set `{has}`; leave it out of these"
                f" files, or add --take-over (takeOver) to move it to `{self.name}`"
            )
            problems.append(document.problem(("metadata", "name"), text))
        if self.name and self.project_in and current is not None and not has and not self.take_over:
            text = (
                f"{document.kind.name.lower()}/{document.name} exists and is not of this project, whose deletion would"
                " delete it; rename the service or the project, or add --take-over (takeOver)"
            )
            problems.append(document.problem(("metadata", "name"), text))
        labels = {key: value for key, value in document.labels.items() if key != LABEL}
        return replace(document, labels=labels), problems

    def member(self, obj: StoredObject) -> StoredObject:
        """Return the object as a member of the set."""
        return replace(obj, labels={**obj.labels, LABEL: self.name}) if self.name else obj

    def pruned(
        self, transaction: Transaction, registry: Registry, now: float, kept_documents: Mapping[Key, Document]
    ) -> tuple[list[StoredObject], list[Problem]]:
        """Request the deletion of pruned members; return them, or the problems.

        Call it once the documents are put: references count as they are afterwards.
        """
        if not self.prune:
            return [], []
        cascade = Cascade(transaction, registry, now)
        doomed = cascade.closure(list(self._objects_to_prune(transaction, registry, kept_documents.keys())))
        doomed.sort(key=_key)
        require_objects(doomed, "delete")
        problems = [Problem.of_request("", f"can't be pruned: {text}") for text in cascade.refusals(doomed)]
        for obj in doomed:
            document = kept_documents.get(_key(obj))
            if document is not None:
                text = "would be deleted with its owner, which left the files of apply set"
                problems.append(
                    document.problem(
                        ("metadata", "name"), f"{text} `{self.name}`; add the owner, or remove the reference"
                    )
                )
        if problems:
            return [], problems
        marked = cascade.mark(doomed)
        return [marked[obj.uid] for obj in doomed], []

    def _objects_to_prune(
        self, transaction: Transaction, registry: Registry, kept_keys: Iterable[Key]
    ) -> Iterable[StoredObject]:
        stay = set(kept_keys)
        for kind in registry:
            for obj in transaction.list(kind.name, self.project_in or None):
                if set_of(obj.labels) == self.name and obj.deleted_at is None and _key(obj) not in stay:
                    yield obj


NO_SET = ApplySet()


def _key(obj: StoredObject) -> Key:
    return obj.kind, obj.namespace, obj.name
