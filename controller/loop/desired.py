"""The desired side, kept as the observed one is: an immutable map, brought up to date from the store's changes."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import ValidationError

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.snapshot import Sandbox
from controller.ports import ChangesGone, Store

_KIND = "Sandbox"
_BATCH = 5000


class Desired:
    """Reads what changed since last time; an object that did not change stays the same Python object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._revision: int | None = None
        self._sandboxes: dict[str, Sandbox] = {}

    def refresh(self) -> Mapping[str, Sandbox]:
        """The sandboxes as of now, by uid. StoreError leaves what was known before in place for the next try."""
        if self._revision is None:
            self._relist()
        else:
            self._follow(self._revision)
        return MappingProxyType(self._sandboxes)

    def _relist(self) -> None:
        objects, revision = self._store.list(_KIND)
        known = self._sandboxes
        self._sandboxes = {obj.uid: _read(obj, known.get(obj.uid)) for obj in objects}
        self._revision = revision

    def _follow(self, since: int) -> None:
        try:
            changes = self._store.changes(since, limit=_BATCH)
            while changes:
                fresh = dict(self._sandboxes)
                for change in changes:
                    if change.obj.kind != _KIND:
                        continue
                    if change.type == "DELETED":
                        fresh.pop(change.obj.uid, None)
                    else:
                        fresh[change.obj.uid] = _read(change.obj, fresh.get(change.obj.uid))
                self._sandboxes = fresh
                self._revision = since = changes[-1].revision
                changes = self._store.changes(since, limit=_BATCH)
        except ChangesGone:
            self._relist()


def _read(obj: StoredObject, known: Sandbox | None) -> Sandbox:
    """The object with its spec parsed; an unchanged generation is not parsed again."""
    if known is not None and known.obj.resource_version == obj.resource_version:
        return known
    if known is not None and known.obj.generation == obj.generation:
        return Sandbox(obj, known.spec, known.broken)
    try:
        return Sandbox(obj, SandboxSpec.model_validate(obj.spec))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return Sandbox(obj, None, f"this version cannot read the stored spec: {where}: {first['msg']}")
