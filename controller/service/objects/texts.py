"""JSON of stored objects, made once for each version: lists and watches share it."""

import json
import threading
from collections import OrderedDict
from typing import NamedTuple

from controller.kinds.meta import StoredObject
from controller.service.listing import serialize

_MOST_BYTES = 24 << 20
_MOST_LISTS, _MOST_LIST_BYTES = 4, 1 << 20  # a longer one is put together each time


class _Text(NamedTuple):
    version: int
    text: bytes


class WholeList(NamedTuple):
    """All objects of a kind, in one or all namespaces."""

    kind: str
    namespace: str | None


class ObjectTexts:
    """A bounded cache of one store's objects, by uid: the newest version of each. Thread-safe.

    An object that is not stored (resource version 0) is serialized each time. The lists asked for last are held, too,
    each with the revision of the store that it was read at.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        """Hold at most `most_bytes` of text; what was not asked for longest is dropped first."""
        self._most_bytes, self._bytes = most_bytes, 0
        self._texts: OrderedDict[str, _Text] = OrderedDict()
        self._lists: OrderedDict[WholeList, _Text] = OrderedDict()
        self._lock = threading.Lock()

    def cached(self, uid: str, version: int) -> bytes | None:
        """Return the JSON of that version of an object, if it is held."""
        with self._lock:
            text = self._texts.get(uid)
            if text is None or text.version != version:
                return None
            self._texts.move_to_end(uid)
            return text.text

    def json(self, obj: StoredObject) -> bytes:
        """Return the object's JSON."""
        cached = self.cached(obj.uid, obj.resource_version) if obj.resource_version else None
        if cached is not None:
            return cached
        text = json.dumps(
            serialize.obj(obj), ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
        ).encode()
        if obj.resource_version:
            self._keep(obj.uid, _Text(obj.resource_version, text))
        return text

    def cached_list(self, key: WholeList, revision: int) -> bytes | None:
        """Return the JSON of a list, if nothing was written since it was read."""
        with self._lock:
            text = self._lists.get(key)
            return text.text if text is not None and text.version == revision else None

    def keep_list(self, key: WholeList, revision: int, text: bytes) -> None:
        """Hold the JSON of a list that was read at that revision."""
        with self._lock:
            self._lists.pop(key, None)
            if len(text) <= _MOST_LIST_BYTES:
                self._lists[key] = _Text(revision, text)
            if len(self._lists) > _MOST_LISTS:
                self._lists.popitem(last=False)

    def _keep(self, uid: str, text: _Text) -> None:
        """Hold a text, unless a newer one is held. A watch that catches up does not displace what lists ask for."""
        with self._lock:
            before = self._texts.get(uid)
            if before is not None and before.version >= text.version:
                return
            self._bytes += len(text.text) - (len(before.text) if before is not None else 0)
            self._texts[uid] = text
            self._texts.move_to_end(uid)
            while self._bytes > self._most_bytes:
                _, dropped = self._texts.popitem(last=False)
                self._bytes -= len(dropped.text)
