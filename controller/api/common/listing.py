"""Responses of lists, serialized in pieces: only some of the objects exist as JSON values at a time.

Memory of thousands of small values stays with the process. Large blocks of text are returned to the host
(controller/app/memory.py).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from fastapi import Response

from controller.kinds.registry import Kind
from controller.service.objects import serialize, table
from controller.service.objects.objects import Found
from controller.service.objects.texts import ObjectTexts
from controller.version import API_VERSION

_PIECE = 50  # items
Missing = Sequence[Mapping[str, str]] | None


def list_of(kind: Kind, found: Found, texts: ObjectTexts | None = None, missing: Missing = None) -> Response:
    """Return a Kubernetes List. `texts` are those of the store's objects: an unchanged one is not serialized again.

    `missing` are hosts whose objects are not in it (None: there is one host).
    """
    head = serialize.list_head(kind.name, found.revision, found.rest) | _without(missing)
    if texts is not None and found.versions and not kind.flat:
        known = ((texts.known(*version), at) for at, version in enumerate(found.versions))
        return _joined(head, "items", (text or texts.json(found.objects[at]) for text, at in known))
    return _answer(head, "items", (serialize.shown(kind, each) for each in found.objects))


def table_of(kind: Kind, found: Found, now: float, version: str = API_VERSION, missing: Missing = None) -> Response:
    """Return a Kubernetes Table of that version. `now` is Unix seconds; `missing` as for `list_of`."""
    head = table.head(kind, found.revision, version, found.rest) | _without(missing)
    return _answer(head, "rows", table.rows(kind, found.objects, now, version))


def _without(missing: Missing) -> serialize.Json:
    return {} if missing is None else {"missing": list(missing)}


def _answer(head: serialize.Json, name: str, items: Iterable[serialize.Json]) -> Response:
    """Serialize the head, with the items as its last field."""
    rest = iter(items)
    return _joined(head, name, (_text(piece)[1:-1] for piece in iter(lambda: list(islice(rest, _PIECE)), [])))


def _joined(head: serialize.Json, name: str, texts: Iterable[bytes]) -> Response:
    """Return the head, with the serialized items as its last field."""
    body = b"".join((_text(head)[:-1], b',"', name.encode(), b'":[', b",".join(texts), b"]}"))
    return Response(body, media_type="application/json")


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
