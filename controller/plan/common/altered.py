"""A copy of frozen data with some fields changed, made only if one is. Used where every pass comes by."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    D = TypeVar("D", bound=DataclassInstance)


def altered(known: "D", **fields: Any) -> "D":
    """As `dataclasses.replace`, or the same object where nothing changes.

    In most passes nothing does, and a copy of a case or a memory takes some ten times as long as looking.
    """
    for name, value in fields.items():
        held = getattr(known, name)
        if held is not value and held != value:
            return replace(known, **fields)
    return known
