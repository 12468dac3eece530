"""Objects as rows: what `paddock get` prints is made here, so that every client shows the same columns. Pure."""

from collections.abc import Sequence

from controller.kinds.meta import Event, StoredObject
from controller.kinds.registry import Kind
from controller.kinds.sandbox import age
from controller.service import wire
from controller.version import API_VERSION


def table(kind: Kind, objects: Sequence[StoredObject], now: float, revision: int = 0) -> wire.Json:
    """A Kubernetes Table; columns of priority 1 are for `-o wide`. `now` is Unix seconds."""
    rows = [
        {
            "cells": [each.name, *(column.cell(each, now) for column in kind.columns)],
            "object": {"metadata": wire.metadata(each)},
        }
        for each in objects
    ]
    titles = [("NAME", False), *((column.title, column.wide) for column in kind.columns)]
    return _table(titles, rows, revision)


def event_table(events: Sequence[Event], now: float) -> wire.Json:
    """Events as a Table, oldest first."""
    rows = [
        {
            "cells": [
                age(now - each.at) + (f" (x{each.count})" if each.count > 1 else ""),
                each.type,
                each.reason,
                f"{each.ref.kind.lower()}/{each.ref.name}",
                each.message,
            ],
            "object": {"metadata": {"namespace": each.ref.namespace, "name": each.ref.name}},
        }
        for each in events
    ]
    titles = [(title, False) for title in ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")]
    return _table(titles, rows, 0)


def _table(titles: Sequence[tuple[str, bool]], rows: list[wire.Json], revision: int) -> wire.Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "Table",
        "metadata": {"resourceVersion": str(revision)} if revision else {},
        "columnDefinitions": [{"name": name, "type": "string", "priority": int(wide)} for name, wide in titles],
        "rows": rows,
    }
