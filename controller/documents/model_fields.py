"""Lookup in the spec models: the field at a path, and the likely field for a misspelled name."""

import difflib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from controller.kinds.base import Form
from controller.kinds.common.problem import Path
from controller.kinds.common.quantity import Bytes, Millicores

_LONGEST_WORD = 100  # of a possible misspelling


def fields_by_spelling(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by the name users write."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of the mapping at that path; None if there is none."""
    holder: type[BaseModel] | None = model
    for step in path:
        if holder is None or isinstance(step, int):
            continue
        info = fields_by_spelling(holder).get(step)
        holder = next(_models(info.annotation), None) if info else None
    return holder


def field_at(model: type[BaseModel], path: Path) -> FieldInfo | None:
    """Return the field at a path, or the field whose item is there."""
    names = [at for at, step in enumerate(path) if isinstance(step, str)]
    for at in reversed(names):
        holder = model_at(model, path[:at])
        if holder is not None and (info := fields_by_spelling(holder).get(str(path[at]))):
            return info
    return None


def _metadata(info: FieldInfo) -> Iterator[Any]:
    yield from info.metadata

    def inner(annotation: Any) -> Iterator[Any]:
        yield from getattr(annotation, "__metadata__", ())
        for argument in get_args(annotation):
            yield from inner(argument)

    yield from inner(info.annotation)


def forms(info: FieldInfo) -> list[str]:
    """Return the forms, in words, of the field's value, or of its items or keys."""
    return [form.text for form in _metadata(info) if isinstance(form, Form)]


def quantity(info: FieldInfo) -> str:
    """Return `cpu` or `bytes` for a field of such a quantity, else ""."""
    types = set(_types(info.annotation))
    if Millicores in types:
        return "cpu"
    return "bytes" if Bytes in types else ""


def _types(annotation: Any) -> Iterator[Any]:
    """Yield the types in an annotation."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for argument in inner[:1] if get_origin(annotation) is Annotated else inner:
        yield from _types(argument)


def closest(word: str, candidates: Iterable[str]) -> str:
    """Return the most similar known word; "" if none is similar."""
    if len(word) > _LONGEST_WORD:
        return ""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(word.lower().replace("_", "").replace("-", ""), by_lower, n=1, cutoff=0.7)
    return by_lower[matches[0]] if matches else ""


def elsewhere(model: type[BaseModel], name: str) -> Path:
    """Return the one path at which the model has a field of that name; empty if there is none, or more."""
    paths = list(_paths(model, name, ()))
    return paths[0] if len(paths) == 1 else ()


def _paths(model: type[BaseModel], name: str, around: Path) -> Iterator[Path]:
    for spelling, info in fields_by_spelling(model).items():
        if spelling == name:
            yield (*around, spelling)
        for inner in _models(info.annotation):
            yield from _paths(inner, name, (*around, spelling))
