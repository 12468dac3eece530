"""Remove images of ours that nothing has needed for a while, as plan/capacity/images.py decides."""

from collections.abc import Callable, Mapping

import structlog

from controller.kinds.meta import Event, ObjectRef
from controller.kinds.planning.plan import Writes
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.registry import Registry
from controller.kinds.runtime.images import HostImage
from controller.plan.capacity.images import PruneRules, Pruning, prune
from controller.ports import Clock, Images, Meter, Store, StoreError

_log = structlog.get_logger("paddock.images")
IMAGES_SECONDS = 600.0


class ImageKeeper:
    """`look` is called every IMAGES_SECONDS. Delays are kept in memory: a daemon that restarts counts them anew.

    `host` is what is told of what went.
    """

    def __init__(
        self,
        images: Images,
        *,
        snapshot: Callable[[], Snapshot | None],
        store: Store,
        registry: Registry,
        clock: Clock,
        meter: Meter,
        host: ObjectRef,
        rules: PruneRules,
    ) -> None:
        self._images, self._snapshot, self._store, self._registry = images, snapshot, store, registry
        self._clock, self._meter, self._host, self._rules = clock, meter, host, rules
        self._since: Mapping[str, float] = {}

    def look(self) -> None:
        """Look at what there is, and remove what is due. What can't be looked at is left for the next time."""
        if self._rules.what == "none":
            return
        found = self._decide()
        self._since = found.since if found else {}
        for each in found.due if found else ():
            self._remove(each)

    def _decide(self) -> Pruning | None:
        # Images first: what is made of one, or comes to need one, after that look is seen by the next two.
        images = self._images.ours()
        snapshot = self._snapshot()
        if images is None or snapshot is None:
            return None
        try:
            kinds = [each.name for each in self._registry if not each.read_only]
            specs = [each.spec for kind in kinds for each in self._store.list(kind)[0]]
        except StoreError as error:
            _log.warning("unused images are not looked for", reason=str(error))
            return None
        return prune(images, snapshot, specs, self._since, self._rules)

    def _remove(self, image: HostImage) -> None:
        words = self._images.remove(image)
        name = ", ".join(image.names) or f"{image.id.removeprefix('sha256:')[:12]} (superseded)"
        if words:
            _log.info("an unused image stays", image=name, reason=words)
            return
        self._meter.count("paddock_reaped_total", reason="image")
        told = f"removed the image {name}: nothing needed it for {self._rules.grace_seconds:g} s"
        try:
            self._store.record(Writes(events=(Event(self._host, "Normal", "ImagePruned", told, self._clock.now()),)))
        except StoreError as error:
            _log.warning("not stored: " + told, reason=str(error))
