"""Where come from what is not stored: read-only kinds, and the built-in objects of others.

Each is worked out at the reading, by the file that bears its kind's name.
"""

import uuid
from collections.abc import Sequence
from typing import Protocol

from controller.kinds.meta import StoredObject
from controller.service.objects.field_selector import FieldSelector

_SPACE = uuid.UUID("6a8e0c1e-52f7-4f43-9d0c-0d6a3f7b7f10")  # of ours alone


class Source(Protocol):
    """Gives the objects of one kind. May block on the store, and raise StoreError; never calls the engine."""

    def get(self, namespace: str, name: str) -> StoredObject | None:
        """The object; None when it is not there."""
        ...

    def list(self, namespace: str | None, asked: FieldSelector, limit: int) -> Sequence[StoredObject]:
        """All objects; those that `asked` does not match may be left out, and all but the last `limit` (0: none) that
        it matches."""
        ...


class DeletingSource(Source, Protocol):
    """The source of a read-only kind that is deletable."""

    def delete(self, namespace: str, name: str) -> StoredObject | None:
        """Delete the object, and give it as it was; None where there is none. Raises ServiceError, StoreError."""
        ...


def derived_uid(*words: str) -> str:
    """A uid that is the same at each reading."""
    return str(uuid.uuid5(_SPACE, "\n".join(words)))
