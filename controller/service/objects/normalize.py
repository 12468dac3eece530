"""Specs in their stored form: checked, with defaults, canonical. Fields unknown to this version are preserved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from controller.kinds.base import Model
from controller.kinds.common.problem import Path
from controller.kinds.registry import Kind


@dataclass(frozen=True, slots=True)
class Normal:
    """A spec as a model, and in its stored form."""

    model: Model
    stored: Mapping[str, Any]


def normalise(kind: Kind, spec: Mapping[str, Any]) -> Normal:
    """Check a spec and fill in its defaults. Raises pydantic's ValidationError.

    Documents are checked before, so unknown fields come from the store, written by a newer Paddock. They are set aside
    for the check and preserved.
    """
    try:
        return _dump(kind.spec.model_validate(spec, by_alias=True, by_name=False), ())
    except ValidationError as error:
        unknown = [tuple(fault["loc"]) for fault in error.errors() if fault["type"] == "extra_forbidden"]
        if not unknown:
            raise
    known_fields = _copy(spec)
    aside = [(path, _take(known_fields, path)) for path in unknown]
    return _dump(kind.spec.model_validate(known_fields, by_alias=True, by_name=False), aside)


def is_same_spec(kind: Kind, stored: Mapping[str, Any], desired: Normal) -> bool:
    """Return True if a stored spec equals this one, though its defaults may be those of another version."""
    if stored == desired.stored:
        return True
    try:
        return normalise(kind, stored).stored == desired.stored
    except ValidationError:
        return False


def _dump(model: Model, aside: Sequence[tuple[Path, Any]]) -> Normal:
    stored = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    for path, value in aside:
        holder = _holder(stored, path)
        if holder is not None:
            holder[path[-1]] = value
    return Normal(model, stored)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(element) for key, element in value.items()}
    return [_copy(element) for element in value] if isinstance(value, list | tuple) else value


def _holder(value: Any, path: Path) -> Any:
    """Return the collection that holds the last step of a path, or None."""
    for step in path[:-1]:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _take(value: Any, path: Path) -> Any:
    return _holder(value, path).pop(path[-1])
