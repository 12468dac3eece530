"""The Host object of this host, among those of a store: stored for the other daemons, whenever it changed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from controller.kinds.host import ENGINE, other_engine
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.plan import Writes
from controller.kinds.runtime.images import reference
from controller.ports import Clock, ImageError, Images, Store, StoreError

_log = structlog.get_logger("paddock.hosts")
HOST_SECONDS, IMAGES_SECONDS = 2.0, 15.0
_MOST_IMAGES = 200
_APART_SECONDS = 10.0  # between two writes
_VERIFY_SECONDS = 60.0  # somebody may have removed it


class HostImages:
    """Names of the engine's images, listed every IMAGES_SECONDS. A failure leaves those of before."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._names: tuple[str, ...] | None = None

    def names(self) -> Sequence[str] | None:
        """Return the references of images as last listed, in a bounded number of the newest; None: not listed yet."""
        return self._names

    def observe_now(self) -> None:
        try:
            images = sorted(self._images.all(), key=lambda image: (-image.created_at, image.id))
        except ImageError as error:
            _log.warning("images not listed; retrying", reason=str(error))
            return
        names = dict.fromkeys(name for image in images for name in map(reference, (*image.names, *image.digests)))
        self._names = tuple(sorted(list(names)[:_MOST_IMAGES]))


class HostReport:
    """`report` is called every HOST_SECONDS. That the daemon lives, its lease says: an unchanged status is not written.

    `current` returns the host with the status to store, without I/O. The first engine of a host is noted beside it;
    a daemon with another one calls `refuse`, and stores nothing.
    """

    def __init__(
        self,
        current: Callable[[], StoredObject],
        store: Store,
        clock: Clock,
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        self._current, self._store, self._clock, self._refuse = current, store, clock, refuse
        self._known: Mapping[str, Any] | None = None
        self._written = self._verified = -math.inf

    def report(self) -> None:
        """Store the status if it changed. After a store failure it is stored next time."""
        now, host = self._clock.now(), self._current()
        current = host.status
        changed = current != self._known
        last, wait = (self._written, _APART_SECONDS) if changed else (self._verified, _VERIFY_SECONDS)
        if last <= now < last + wait:
            return
        try:
            stored = self._store.get(host.kind, host.namespace, host.name)
            if stored is not None and "images" in stored.status:  # of before a restart, until they are listed again
                host = replace(host, status={"images": stored.status["images"], **current})
            engine_id = str(host.status.get("engine", {}).get("id") or "")
            if refusal := other_engine(self._store.list(host.kind)[0], host.name, engine_id):
                self._give_up(host, refusal, now)
                return
            if stored is None or stored.status != host.status or (engine_id and ENGINE not in stored.annotations):
                self._write(host, engine_id, now)
                self._written = now
        except StoreError as error:
            _log.warning("host not stored; retrying", reason=str(error))
            return
        self._known, self._verified = current, now

    def _write(self, host: StoredObject, engine_id: str, now: float) -> None:
        """Store the status, beside the spec and labels that people gave the host."""
        with self._store.transaction() as transaction:
            stored = transaction.get(host.kind, host.namespace, host.name) or replace(host, created_at=now)
            engine_annotation = {ENGINE: engine_id} if engine_id else {}
            transaction.put(
                replace(stored, status=host.status, annotations={**engine_annotation, **stored.annotations})
            )

    def _give_up(self, host: StoredObject, reason: str, now: float) -> None:
        """Leave the host to the daemon with its engine: sandboxes are there, and would be created here once more."""
        _log.error("host refused", reason=reason)
        self._store.record(Writes(events=(Event(host.ref, "Warning", "OtherEngine", reason, now),)))
        self._refuse()
