"""Get, list and delete objects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import structlog

from controller.kinds.common.owner_reference import Propagation
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, Registry
from controller.ports import Clock, Store, Wake
from controller.service import errors
from controller.service.access.access import not_found as not_found  # for the other use-cases
from controller.service.listing import field_selector, page_token, selector
from controller.service.listing.field_selector import FieldSelector
from controller.service.listing.page_token import PageToken
from controller.service.objects.cascade import Cascade
from controller.service.sources import DeletingSource, Source

_CHUNK = 100  # objects read at once, of which a selector may match few
_log = structlog.get_logger("paddock.objects")


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Objects in order of namespace and name (events: oldest first), and the revision they were read at.

    The revision of objects that are not stored is 0. `continue_token` is the next page's; "": this is the last.
    `versions` are the uids and resource versions of stored objects, which are then decoded on access ((): they are all
    at hand).
    """

    objects: Sequence[StoredObject]
    revision: int
    continue_token: str = ""
    versions: Sequence[tuple[str, int]] = ()


class Objects:
    """The use-cases. `namespace` None means all namespaces. Store failures are ServiceUnavailable."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        wake: Wake,
        clock: Clock,
        sources: Mapping[str, Source] = MappingProxyType({}),
    ) -> None:
        self._store, self._registry = store, registry
        self._wake, self._clock, self._sources = wake, clock, sources

    def now(self) -> float:
        """Return the time for tables, in Unix seconds."""
        return self._clock.now()

    def revision(self) -> int:
        """Return the revision of the newest write."""
        with errors.translate_store_errors():
            return self._store.revision()

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        """Return the object. Raises NotFound."""
        with errors.translate_store_errors():
            source = self._sources.get(kind.name)
            stored = source.get(namespace, name) if source else None
            if stored is None and not kind.read_only:
                stored = self._store.get(kind.name, namespace, name)
        if stored is None:
            raise not_found(kind, namespace, name)
        return stored

    def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = "", limit: int = 0
    ) -> ObjectPage:
        """Return the objects that both selectors match, the last `limit` of them (0: all).

        Raises BadRequest for an invalid selector.
        """
        by_labels, by_fields = selector.parse(labels), field_selector.parse(fields, kind)
        with errors.translate_store_errors():
            objects, revision = self._all(kind, namespace, by_fields, 0 if by_labels.requirements else limit)
        if (
            by_labels.requirements or by_fields.terms
        ):  # else as they are: some sources make each item only when it is read
            objects = [obj for obj in objects if by_labels.matches(obj.labels) and by_fields.matches(obj)]
        return ObjectPage(objects[-limit:] if 0 < limit < len(objects) else objects, revision)

    def page(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
    ) -> ObjectPage:
        """Return at most `limit` (0: all) of a stored kind's objects that both selectors match, after the page before.

        Raises BadRequest for an invalid selector or token.
        """
        last = page_token.parse(token) if token else None
        by_labels, by_fields = selector.parse(labels), field_selector.parse(fields, kind)
        if not by_labels.requirements and not by_fields.terms and kind.name not in self._sources:
            return self._whole_page(kind, namespace, last, limit)
        matches: list[StoredObject] = []
        first_revision = None if last is None else last.revision
        after = None if last is None else last.after
        chunk = None if limit == 0 else limit + 1
        with errors.translate_store_errors():
            while True:
                objects, revision = self._some(kind, namespace, after, chunk)
                first_revision = revision if first_revision is None else first_revision
                matches += [obj for obj in objects if by_labels.matches(obj.labels) and by_fields.matches(obj)]
                if chunk is None or len(objects) < chunk or len(matches) > limit:
                    break
                after, chunk = (objects[-1].namespace, objects[-1].name), max(chunk, _CHUNK)
        if limit == 0 or len(matches) <= limit:
            return ObjectPage(matches, first_revision)
        matches = matches[:limit]
        return ObjectPage(
            matches, first_revision, PageToken(first_revision, (matches[-1].namespace, matches[-1].name)).text()
        )

    def _whole_page(self, kind: Kind, namespace: str | None, last: PageToken | None, limit: int) -> ObjectPage:
        """Return a page of a stored kind, without selectors: its objects are decoded where they are read."""
        after = None if last is None else last.after
        with errors.translate_store_errors():
            page = self._store.page(kind.name, namespace, after=after, limit=limit + 1 if limit else None)
        first_revision = page.revision if last is None else last.revision
        if limit == 0 or len(page.versions) <= limit:
            return ObjectPage(page.objects, first_revision, versions=page.versions)
        end = page.objects[limit - 1]
        continue_token = PageToken(first_revision, (end.namespace, end.name)).text()
        return ObjectPage(page.objects[:limit], first_revision, continue_token, page.versions[:limit])

    def _some(
        self, kind: Kind, namespace: str | None, after: tuple[str, str] | None, limit: int | None
    ) -> tuple[Sequence[StoredObject], int]:
        """Return objects of a stored kind after a place in its order; the built-in ones of some kinds among them."""
        if kind.name not in self._sources:
            page = self._store.page(kind.name, namespace, after=after, limit=limit)
            return page.objects, page.revision
        objects, revision = self._all(kind, namespace, field_selector.parse("", kind), 0)
        later = [obj for obj in objects if after is None or (obj.namespace, obj.name) > after]
        return later[:limit], revision

    def _all(
        self, kind: Kind, namespace: str | None, by_fields: FieldSelector, limit: int
    ) -> tuple[Sequence[StoredObject], int]:
        source = self._sources.get(kind.name)
        computed = source.list(namespace, by_fields, limit) if source else ()
        if kind.read_only:
            return computed, 0
        stored, revision = self._store.list(kind.name, namespace)
        both = sorted((*computed, *stored), key=lambda obj: obj.name) if computed else stored
        return both, revision

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation | None = None,
        deleted_by: str = "",
    ) -> StoredObject:
        """Request the deletion of an object; a second request is no error. Raises NotFound once it is gone.

        `propagation` applies to its dependents (None: Background). Raises Conflict when an object in use would go.
        """
        errors.check_built_in(kind, name)
        if kind.read_only:
            return self._delete_read_only(kind, namespace, name, deleted_by)
        with errors.translate_store_errors(), self._store.transaction() as transaction:
            transaction.read_ahead([(kind.name, namespace, name)], owned=True)
            stored = transaction.get(kind.name, namespace, name)
            if stored is None:
                raise not_found(kind, namespace, name)
            [deleted] = Cascade(transaction, self._registry, self.now()).delete([stored], propagation)
        self._announce([deleted], deleted_by)
        return deleted

    def _delete_read_only(self, kind: Kind, namespace: str, name: str, deleted_by: str) -> StoredObject:
        """Delete an object that is not stored, by the source of its kind."""
        if not kind.deletable:
            raise errors.MethodNotAllowed(f"{kind.name} is read-only: {kind.read_only}", kind=kind.plural)
        with errors.translate_store_errors():
            deleted = cast("DeletingSource", self._sources[kind.name]).delete(namespace, name)
        if deleted is None:
            raise not_found(kind, namespace, name)
        self._announce([deleted], deleted_by)
        return deleted

    def delete_all(
        self,
        kind: Kind,
        namespace: str,
        *,
        labels: str = "",
        propagation: Propagation | None = None,
        deleted_by: str = "",
    ) -> Sequence[StoredObject]:
        """Request the deletion of all matching objects of a namespace, in one transaction."""
        matching = selector.parse(labels)
        with errors.translate_store_errors(), self._store.transaction() as transaction:
            matches = [obj for obj in transaction.list(kind.name, namespace) if matching.matches(obj.labels)]
            deleted = Cascade(transaction, self._registry, self.now()).delete(matches, propagation)
        self._announce(deleted, deleted_by)
        return deleted

    def _announce(self, deleted: Sequence[StoredObject], deleted_by: str) -> None:
        if deleted:
            self._wake()
        for obj in deleted:
            _log.info("deletion requested", object=str(obj.ref), by=deleted_by)
