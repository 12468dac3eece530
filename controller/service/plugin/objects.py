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
        wanted = {(each["kind"], each["metadata"]["name"]) for each in documents}
        try:
            owned, others = self._stored(plugin, wanted)
            if others:
                return Kept(taken=tuple(others))
            with access.acting(None):
                sources = [Source(f"plugin/{plugin.name}", json.dumps(each)) for each in documents]
                self._apply.apply(sources, namespace=plugin.namespace, whole=True, applied_by=_WRITTEN_BY)
                return Kept(self._delete(each for each in owned if (each.kind, each.name) not in wanted))
        except errors.ServiceUnavailable as error:
            raise RetryLater(str(error)) from error
        except errors.ServiceError as error:
            return Kept(str(error))

    def _stored(self, plugin: StoredObject, wanted: set[tuple[str, str]]) -> tuple[list[StoredObject], list[str]]:
        """Return the plugin's objects, and the wanted names that objects of others have."""
        with errors.translate_store_errors(), self._store.transaction() as transaction:
            owned = [each for each in transaction.owned() if plugin.uid in owner_uids(each)]
            found = [transaction.get(kind, plugin.namespace, name) for kind, name in sorted(wanted)]
        mine = {each.uid for each in owned}
        others = [each for each in found if each is not None and each.uid not in mine]
        return owned, [f"{each.kind.lower()}/{each.name}" for each in others]

    def _delete(self, unwanted: Iterable[StoredObject]) -> str:
        """Delete objects that an older version had; return why one stays, "" if none does."""
        refused = []
        for each in unwanted:
            kind = self._registry.by_name(each.kind)
            if kind is None or each.deleted_at is not None:
                continue
            try:
                self._objects.delete(kind, each.namespace, each.name, deleted_by=_WRITTEN_BY)
            except errors.NotFound:
                continue
            except errors.Conflict as error:
                refused.append(str(error))
        return "; ".join(refused)
