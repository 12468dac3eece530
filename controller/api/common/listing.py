"""Responses of computed lists, serialized in pieces: only some of the objects exist as JSON values at a time.

Memory of thousands of small values stays with the process. Large blocks of text are returned to the host
(controller/app/memory.py).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from fastapi import Response

from controller.kinds.registry import Kind
from controller.service.listing import serialize, table
from controller.service.objects.objects import ObjectPage
from controller.version import API_VERSION

_PIECE = 50  # items
Missing = Sequence[Mapping[str, str]] | None


def list_of(kind: Kind, page: ObjectPage, missing: Missing = None) -> Response:
    """Return a Kubernetes List. `missing` are hosts whose objects are not in it (None: there is one host)."""
    head = serialize.list_head(kind.name, page.revision, page.continue_token) | _without(missing)
    return _answer(head, "items", (serialize.object_json(kind, stored) for stored in page.objects))


def table_of(kind: Kind, page: ObjectPage, now: float, version: str = API_VERSION, missing: Missing = None) -> Response:
    """Return a Kubernetes Table of that version. `now` is Unix seconds; `missing` as for `list_of`."""
    head = table.head(kind, page.revision, version, page.continue_token) | _without(missing)
    return _answer(head, "rows", table.rows(kind, page.objects, now, version))


def _without(missing: Missing) -> serialize.Json:
    return {} if missing is None else {"missing": list(missing)}


def _answer(head: serialize.Json, name: str, items: Iterable[serialize.Json]) -> Response:
    """Serialize the head, with the items as its last field."""
    remaining = iter(items)
    return _join(head, name, (as_text(piece)[1:-1] for piece in iter(lambda: list(islice(remaining, _PIECE)), [])))


def _join(head: serialize.Json, name: str, texts: Iterable[bytes]) -> Response:
    """Return the head, with the serialized items as its last field."""
    body = b"".join((as_text(head)[:-1], b',"', name.encode(), b'":[', b",".join(texts), b"]}"))
    return Response(body, media_type="application/json")


def as_text(value: object) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
