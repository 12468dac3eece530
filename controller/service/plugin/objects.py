"""ports.PluginWork: the objects of plugins, written as any others are, by Paddock itself."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Registry
from controller.ports import Kept, RetryLater, Store
from controller.service import errors
from controller.service.access import access
from controller.service.objects.apply import Apply, Source
from controller.service.objects.objects import Objects

_WRITTEN_BY = "plugin"


class PluginObjects:
    """See ports.PluginWork."""

    def __init__(self, apply: Apply, objects: Objects, store: Store, registry: Registry) -> None:
        self._apply, self._objects, self._store, self._registry = apply, objects, store, registry

    def keep(self, plugin: StoredObject, documents: Sequence[Mapping[str, Any]]) -> Kept:
        """See ports.PluginWork."""
        desired = {(document["kind"], document["metadata"]["name"]) for document in documents}
        try:
            owned, foreign_names = self._stored(plugin, desired)
            if foreign_names:
                return Kept(taken=tuple(foreign_names))
            with access.acting(None):
                sources = [Source(f"plugin/{plugin.name}", json.dumps(document)) for document in documents]
                self._apply.apply(sources, namespace=plugin.namespace, replaces=True, applied_by=_WRITTEN_BY)
                return Kept(self._delete(obj for obj in owned if (obj.kind, obj.name) not in desired))
        except errors.ServiceUnavailable as error:
            raise RetryLater(str(error)) from error
        except errors.ServiceError as error:
            return Kept(str(error))

    def _stored(self, plugin: StoredObject, desired: set[tuple[str, str]]) -> tuple[list[StoredObject], list[str]]:
        """Return the plugin's objects, and the wanted names that objects of others have."""
        with errors.translate_store_errors(), self._store.transaction() as transaction:
            owned = [obj for obj in transaction.owned() if plugin.uid in owner_uids(obj)]
            stored = [transaction.get(kind, plugin.namespace, name) for kind, name in sorted(desired)]
        mine = {obj.uid for obj in owned}
        foreign_objects = [obj for obj in stored if obj is not None and obj.uid not in mine]
        return owned, [f"{obj.kind.lower()}/{obj.name}" for obj in foreign_objects]

    def _delete(self, unwanted: Iterable[StoredObject]) -> str:
        """Delete objects that an older version had; return why one stays, "" if none does."""
        refusals = []
        for obj in unwanted:
            kind = self._registry.by_name(obj.kind)
            if kind is None or obj.deleted_at is not None:
                continue
            try:
                self._objects.delete(kind, obj.namespace, obj.name, deleted_by=_WRITTEN_BY)
            except errors.NotFound:
                continue
            except errors.Conflict as error:
                refusals.append(str(error))
        return "; ".join(refusals)
