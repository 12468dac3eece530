"""Lists as answers, written in pieces: of thousands of objects only some are there as JSON values at a time.

What thousands of small values take at once stays with the daemon, and is more with each list that is made beside
another; large pieces of text go back to the host (controller/app/memory.py).
"""

import json
from collections.abc import Iterable
from itertools import islice

from fastapi import Response

from controller.kinds.registry import Kind
from controller.service.objects import serialize, table
from controller.service.objects.objects import Found

_PIECE = 50  # items


def list_of(kind: Kind, found: Found) -> Response:
    """A Kubernetes List."""
    items = (serialize.shown(kind, each) for each in found.objects)
    return _answer(serialize.list_head(kind.name, found.revision), "items", items)


def table_of(kind: Kind, found: Found, now: float) -> Response:
    """A Kubernetes Table. `now` is Unix seconds."""
    return _answer(table.head(kind, found.revision), "rows", table.rows(kind, found.objects, now))


def _answer(head: serialize.Json, name: str, items: Iterable[serialize.Json]) -> Response:
    """The head, with the items as its last field."""
    body = bytearray(_text(head)[:-1] + b',"' + name.encode() + b'":[')
    rest, between = iter(items), b""
    while piece := list(islice(rest, _PIECE)):
        body += between + _text(piece)[1:-1]
        between = b","
    body += b"]}"
    return Response(bytes(body), media_type="application/json")


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
