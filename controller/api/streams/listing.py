"""Lists of stored kinds: a short one is one answer, a long one is read and sent in parts.

A part has about PART_BYTES, whatever the size of its objects. A list with a `limit` is cut at ANSWER_BYTES, too, and
says so by `continue`. One without is sent whole: a client that knows nothing of pages must not take a part for all.
Its later parts are read later. As with pages, a watch from its revision tells what they may have missed.
"""

from collections.abc import AsyncIterator, Callable, Iterable

import anyio
import structlog
from anyio.lowlevel import RunVar
from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from controller.api.common.answer import Answer
from controller.api.common.listing import as_text
from controller.api.common.queries import ListQuery
from controller.kinds.registry import Kind
from controller.service.errors import ServiceError
from controller.service.listing import serialize, table
from controller.service.objects.objects import ObjectPage, Objects
from controller.service.objects.texts import ObjectTexts

ANSWER_BYTES = 2 << 20
PART_BYTES = 1 << 20
_FIRST, _MOST = 16, 500  # objects that are read at once
_READERS = 8  # threads of an event loop that read parts, each with all objects of one in memory
_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("paddock_lists")
_log = structlog.get_logger("paddock.api")
Keep = Callable[[int, bytes], None]


class Parts:
    """The parts of one list, in order. Call it on one thread at a time."""

    def __init__(
        self, kind: Kind, objects: Objects, texts: ObjectTexts, namespace: str | None, query: ListQuery, version: str
    ) -> None:
        """`version` is that of a Table; "": whole objects."""
        self._kind, self._objects, self._texts, self._namespace, self._version = (
            kind,
            objects,
            texts,
            namespace,
            version,
        )
        self._query, self._token, self._left = query, query.continue_token, query.limit
        self._count = _FIRST
        self.revision = 0
        self.is_whole = True  # each object is stored, so that the list may be kept

    @property
    def next_token(self) -> str:
        """Token of what is not read yet; "": all is."""
        return self._token

    @property
    def is_cut(self) -> bool:
        """True if the client asked for a part, and there is more."""
        return bool(self._query.limit and self._token)

    def read(self, most_bytes: int = PART_BYTES) -> list[bytes]:
        """Return the next items as JSON, about so many bytes of them. Raises ServiceError."""
        items: list[bytes] = []
        size = 0
        while True:
            count = min(self._count, self._left) if self._query.limit else self._count
            page = self._objects.page(
                self._kind,
                self._namespace,
                labels=self._query.labels,
                fields=self._query.fields,
                limit=count,
                token=self._token,
            )
            page_items = list(self._items(page))
            self.revision, self._token = page.revision, page.continue_token
            self.is_whole &= bool(page.versions) or not page_items
            self._left -= len(page_items)
            items += page_items
            read_bytes = sum(map(len, page_items))
            size += read_bytes
            if page_items:
                fitting = PART_BYTES * len(page_items) // max(1, read_bytes)
                self._count = max(1, min(_MOST, 4 * self._count, fitting))
            if not self._token or size >= most_bytes or (self._query.limit and not self._left):
                return items

    def head(self, next_token: str) -> tuple[bytes, str]:
        """Return the list without its items, and the name of their field."""
        if self._version:
            return as_text(table.head(self._kind, self.revision, self._version, next_token)), "rows"
        return as_text(serialize.list_head(self._kind.name, self.revision, next_token)), "items"

    def _items(self, page: ObjectPage) -> Iterable[bytes]:
        if self._version:
            return map(as_text, table.rows(self._kind, page.objects, self._objects.now(), self._version))
        if page.versions and not self._kind.flat:
            known_texts = ((self._texts.cached(*version), at) for at, version in enumerate(page.versions))
            return (text or self._texts.json(page.objects[at]) for text, at in known_texts)
        return (as_text(serialize.object_json(self._kind, stored)) for stored in page.objects)


async def answer(parts: Parts, counted: Answer, known_body: Callable[[], bytes | None], keep: Keep) -> Response:
    """Return the answer: what `known_body` returns of it already, or what is read.

    `keep` gets a whole list of stored objects, and its revision. Raises ServiceError.
    """

    def begin() -> bytes | list[bytes]:
        return known_body() or parts.read(ANSWER_BYTES)

    items = await anyio.to_thread.run_sync(begin, limiter=_limiter())
    if isinstance(items, bytes):
        return Response(items, media_type="application/json")
    if not parts.next_token or parts.is_cut:
        body = b"".join((*_before(parts, parts.next_token), b",".join(items), b"]}"))
        if parts.is_whole:
            keep(parts.revision, body)
        return Response(body, media_type="application/json")
    return _ListResponse(_sent(parts, items, counted), media_type="application/json")


def _before(parts: Parts, next_token: str) -> Iterable[bytes]:
    head, name = parts.head(next_token)
    return head[:-1], b',"', name.encode(), b'":['


async def _sent(parts: Parts, items: list[bytes], counted: Answer) -> AsyncIterator[bytes]:
    begin = b"".join((*_before(parts, ""), b",".join(items)))
    items.clear()
    yield begin
    del begin
    while parts.next_token:
        await counted.room(PART_BYTES)
        items = await anyio.to_thread.run_sync(parts.read, limiter=_limiter())
        if items:
            yield b"," + b",".join(items)
    yield b"]}"


class _ListResponse(StreamingResponse):
    async def stream_response(self, send: Send) -> None:
        """Stream the body. A later failure leaves it unfinished, which tells the client."""
        try:
            await super().stream_response(send)
        except ServiceError as error:
            _log.warning("list not sent to its end", error=str(error))


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _LIMITER.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_READERS)
        _LIMITER.set(limiter)
        return limiter
