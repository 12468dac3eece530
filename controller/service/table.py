"""Objects as rows: what `paddock get` prints is made here, so that every client shows the same columns. Pure."""

from collections.abc import Sequence

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.service import wire
from controller.version import API_VERSION

_NAME = Column("NAME", lambda obj, _now: obj.name)


def table(kind: Kind, objects: Sequence[StoredObject], now: float, revision: int = 0) -> wire.Json:
    """A Kubernetes Table; columns of priority 1 are for `-o wide`. `now` is Unix seconds."""
    columns = kind.columns if kind.flat else (_NAME, *kind.columns)
    rows = [
        {"cells": [column.cell(each, now) for column in columns], "object": {"metadata": wire.metadata(each)}}
        for each in objects
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "Table",
        "metadata": {"resourceVersion": str(revision)} if revision else {},
        "columnDefinitions": [{"name": each.title, "type": "string", "priority": int(each.wide)} for each in columns],
        "rows": rows,
    }
