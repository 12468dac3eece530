"""Sources of objects that are not stored: read-only kinds, and the built-in objects of others.

Each object is computed when it is read. A source's module has the name of its kind.
"""

import uuid
from collections.abc import Sequence
from typing import Protocol

from controller.kinds.meta import StoredObject
from controller.service.listing.field_selector import FieldSelector

_SPACE = uuid.UUID("6a8e0c1e-52f7-4f43-9d0c-0d6a3f7b7f10")  # Paddock's own namespace


class Source(Protocol):
    """The objects of one kind. May block on the store, and raise StoreError; never calls the engine."""

    def get(self, namespace: str, name: str) -> StoredObject | None:
        """Return the object, or None."""
        ...

    def list(self, namespace: str | None, by_fields: FieldSelector, limit: int) -> Sequence[StoredObject]:
        """Return all objects.

        Objects that `by_fields` does not match may be omitted. With a `limit` (0: none) the last matches suffice.
        """
        ...


class DeletingSource(Source, Protocol):
    """The source of a read-only kind that is deletable."""

    def delete(self, namespace: str, name: str) -> StoredObject | None:
        """Delete the object; return it as it was, or None. Raises ServiceError, StoreError."""
        ...


class PatchableSource(Source, Protocol):
    """The source of a read-only kind that is patchable."""

    def unpatched(self, name: str) -> StoredObject | None:
        """Return the object as it is stored by its first patch, without status; None: there is no such. No I/O."""
        ...


def derived_uid(*components: str) -> str:
    """Return a uid that is the same at each read."""
    return str(uuid.uuid5(_SPACE, "\n".join(components)))
