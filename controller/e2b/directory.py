"""Sandboxes of this protocol by their uids, and which callers were given access to them."""

import threading
from collections.abc import Collection, Sequence

from controller.e2b.metadata import LABEL, TOKEN
from controller.e2b.signature import Access
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import NotFound
from controller.service.objects.objects import Objects

_MOST = 20_000


class Directory:
    """Thread-safe. It begins with the stored sandboxes that a client of E2B created."""

    def __init__(self, objects: Objects) -> None:
        self._objects, self._lock = objects, threading.Lock()
        self._places: dict[str, tuple[str, str]] = {}
        self._accesses: dict[Access, None] = {}
        for obj in objects.list(SANDBOX, labels=f"{LABEL}=true").objects:
            self.add(obj, obj.annotations.get(TOKEN, ""))

    def add(self, obj: StoredObject, token_id: str) -> None:
        """Note that a caller has access to a sandbox."""
        with self._lock:
            self._places[obj.uid] = (obj.namespace, obj.name)
            if token_id:
                self._accesses[Access(obj.uid, token_id)] = None
            while len(self._places) > _MOST:
                del self._places[next(iter(self._places))]
            while len(self._accesses) > _MOST:
                del self._accesses[next(iter(self._accesses))]

    def get(self, uid: str) -> StoredObject | None:
        """Return the sandbox; None: it is unknown, or gone. Raises ServiceUnavailable."""
        place = self._places.get(uid)
        if place is None:
            return None
        try:
            obj = self._objects.get(SANDBOX, *place)
        except NotFound:
            obj = None
        if obj is None or obj.uid != uid:
            self._forget((uid,))
            return None
        return obj

    def accesses(self) -> Sequence[Access]:
        """Return every access that was given to a sandbox that is still known."""
        with self._lock:
            return tuple(self._accesses)

    def stored_uids(self) -> frozenset[str]:
        """Return the uids of all stored sandboxes, and forget those that are gone. Raises ServiceUnavailable."""
        with self._lock:
            known = set(self._places)  # before the look: what is new since is not gone
        stored = frozenset(obj.uid for obj in self._objects.list(SANDBOX).objects)
        self._forget(known - stored)
        return stored

    def _forget(self, uids: Collection[str]) -> None:
        with self._lock:
            for uid in uids:
                self._places.pop(uid, None)
            for access in [access for access in self._accesses if access.uid in uids]:
                del self._accesses[access]
