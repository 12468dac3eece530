"""Objects as table rows: the server makes the columns, so that every client shows the same ones. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.service.listing import serialize
from controller.version import API_VERSION

KUBERNETES = "meta.k8s.io/v1"  # the version of kubectl's own tables
_NAME = Column("NAME", lambda obj, _now: obj.name)


def table(
    kind: Kind, objects: Iterable[StoredObject], now: float, revision: int = 0, version: str = API_VERSION
) -> serialize.Json:
    """Return a Kubernetes Table of that version. Columns of priority 1 are for `-o wide`. `now` is Unix seconds."""
    return {**head(kind, revision, version), "rows": list(rows(kind, objects, now, version))}


def head(kind: Kind, revision: int = 0, version: str = API_VERSION, continue_token: str = "") -> serialize.Json:
    """Return a Table without rows. `continue_token` is the token of the next page, if there is one."""
    return {
        "apiVersion": version,
        "kind": "Table",
        "metadata": serialize.list_metadata(revision, continue_token) if revision else {},
        "columnDefinitions": [
            {"name": column.title, "type": "string", "priority": int(column.wide)} for column in _columns(kind)
        ],
    }


def rows(
    kind: Kind, objects: Iterable[StoredObject], now: float, version: str = API_VERSION
) -> Iterator[serialize.Json]:
    """Yield a Table's rows. `now` is Unix seconds."""
    columns = _columns(kind)
    type_ = {"apiVersion": version, "kind": "PartialObjectMetadata"} if version == KUBERNETES else {}
    for obj in objects:
        cells = [column.cell(obj, now) for column in columns]
        yield {"cells": cells, "object": {**type_, "metadata": serialize.metadata(obj)}}


def _columns(kind: Kind) -> Sequence[Column]:
    return kind.columns if kind.flat else (_NAME, *kind.columns)
