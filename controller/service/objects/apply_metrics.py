"""Counts what `apply` came to: each object by its result, and calls that were refused as a whole."""

from collections.abc import Iterator
from contextlib import contextmanager

from controller.ports import Meter
from controller.service import errors

_NAME = "paddock_apply_objects_total"


def tell_result(meter: Meter, kind: str, result: str) -> None:
    """One object's result."""
    meter.count(_NAME, kind=kind, result=result)


@contextmanager
def refusals_counted(meter: Meter) -> Iterator[None]:
    """Count a call that is refused: nothing of it was written, whatever kinds it names."""
    try:
        yield
    except errors.Invalid:
        meter.count(_NAME, kind="", result="invalid")
        raise
    except errors.Conflict:
        meter.count(_NAME, kind="", result="conflict")
        raise
