"""Responses of lists, serialized in pieces: only some of the objects exist as JSON values at a time.

Memory of thousands of small values stays with the process. Large blocks of text are returned to the host
(controller/app/memory.py).
"""

import json
from collections.abc import Iterable
from itertools import islice

from fastapi import Response

from controller.kinds.registry import Kind
from controller.service.objects import serialize, table
from controller.service.objects.objects import Found
from controller.version import API_VERSION

_PIECE = 50  # items


def list_of(kind: Kind, found: Found) -> Response:
    """Return a Kubernetes List."""
    items = (serialize.shown(kind, each) for each in found.objects)
    return _answer(serialize.list_head(kind.name, found.revision, found.rest), "items", items)


def table_of(kind: Kind, found: Found, now: float, version: str = API_VERSION) -> Response:
    """Return a Kubernetes Table of that version. `now` is Unix seconds."""
    head = table.head(kind, found.revision, version, found.rest)
    return _answer(head, "rows", table.rows(kind, found.objects, now, version))


def _answer(head: serialize.Json, name: str, items: Iterable[serialize.Json]) -> Response:
    """Serialize the head, with the items as its last field."""
    body = bytearray(_text(head)[:-1] + b',"' + name.encode() + b'":[')
    rest, between = iter(items), b""
    while piece := list(islice(rest, _PIECE)):
        body += between + _text(piece)[1:-1]
        between = b","
    body += b"]}"
    return Response(bytes(body), media_type="application/json")


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
