"""Port of plugins: their objects in the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from controller.kinds.meta import StoredObject


@dataclass(frozen=True, slots=True)
class Kept:
    """Result of keeping a plugin's objects. `taken` are names that objects of others have."""

    failure: str = ""
    taken: tuple[str, ...] = ()


class PluginWork(Protocol):
    """The objects of plugins. Raises RetryLater."""

    def keep(self, plugin: StoredObject, documents: Sequence[Mapping[str, Any]]) -> Kept:
        """Create or change the plugin's objects to be these, and delete its others. Idempotent."""
        ...
