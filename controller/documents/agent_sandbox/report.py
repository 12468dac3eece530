"""Documents of a translation, and what has to be said of it: every field that is dropped or means something else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_NO_COUNTERPART = "has no counterpart; remove it, or write the Paddock field yourself"


@dataclass(slots=True)
class Translation:
    """Documents of Paddock. A note is about a field that changes nothing here, a fault about a lost effect."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Subject:
    """One manifest under translation: reads its parts, and reports what is not translated."""

    def __init__(self, name: str, translation: Translation) -> None:
        self.name, self._translation = name, translation

    def note(self, path: str, message: str) -> None:
        """Add a note, once."""
        self._add(self._translation.notes, path, message)

    def fault(self, path: str, message: str) -> None:
        """Add a fault, once."""
        self._add(self._translation.faults, path, message)

    def _add(self, messages: list[str], path: str, message: str) -> None:
        text = f"{self.name}: {path}: {message}" if path else f"{self.name}: {message}"
        if text not in messages:
            messages.append(text)

    def table(self, parent: Json, key: str, path: str) -> Json:
        """Return the mapping below a key; empty if there is none, with a fault for anything else."""
        value = parent.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.fault(f"{path}.{key}", "must be a mapping; correct it")
        return value if isinstance(value, Mapping) else {}

    def tables(self, parent: Json, key: str, path: str) -> Sequence[Json]:
        """Return the list of mappings below a key; empty if there is none, with a fault for anything else."""
        value = parent.get(key)
        items = value if isinstance(value, list) else []
        if (value is not None and not isinstance(value, list)) or any(
            not isinstance(entry, Mapping) for entry in items
        ):
            self.fault(f"{path}.{key}", "must be a list of mappings; correct it")
        return [entry for entry in items if isinstance(entry, Mapping)]

    def texts(self, parent: Json, key: str, path: str) -> Sequence[str]:
        """Return the list of texts below a key; empty if there is none, with a fault for anything else."""
        value = parent.get(key)
        items = value if isinstance(value, list) else []
        if (value is not None and not isinstance(value, list)) or any(
            isinstance(entry, dict | list) for entry in items
        ):
            self.fault(f"{path}.{key}", "must be a list of texts; correct it")
        return [str(entry) for entry in items if not isinstance(entry, dict | list)]

    def check(
        self,
        fields: Json,
        path: str,
        translated: Sequence[str],
        noted: Mapping[str, str] | None = None,
        harmless: Mapping[str, Any] | None = None,
        remedies: Mapping[str, str] | None = None,
    ) -> None:
        """Report each field that is not translated.

        `noted` have a reason why they change nothing here, `harmless` a value that says what is so here anyway,
        `remedies` what to write instead.
        """
        for key, value in fields.items():
            is_harmless = value in _EMPTY or (harmless is not None and key in harmless and value == harmless[key])
            if key in translated or is_harmless:
                continue
            if noted is not None and key in noted:
                self.note(f"{path}.{key}", f"left out: {noted[key]}")
            else:
                self.fault(f"{path}.{key}", (remedies or {}).get(key, _NO_COUNTERPART))
