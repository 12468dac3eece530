"""Removal of our images that nothing has needed for a while, as plan/capacity/images.py decides."""

from collections.abc import Callable, Mapping

import structlog

from controller.kinds.mcpserver import INSTALLED
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.planning.plan import Writes
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.registry import Registry
from controller.kinds.runtime.agent import volume_name
from controller.plan.capacity.images import PruneRules, Pruning, prune
from controller.ports import Clock, Images, Meter, Store, StoreError

_log = structlog.get_logger("paddock.images")
IMAGES_SECONDS = 600.0


class ImageKeeper:
    """`look` is called every IMAGES_SECONDS. Delays are kept in memory: a restart begins them again.

    `host` is the object of its events.
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

    def observe_now(self) -> None:
        """List the images and agents' runtimes, and remove those that are due. Failures are retried next time."""
        if self._rules.what == "none":
            return
        found = self._decide()
        self._since = found.since if found else {}
        # Runtimes first: each holds its image.
        for runtime in found.runtimes if found else ():
            self._report(f"agent runtime {volume_name(runtime.image)}", self._images.remove_agent_runtime(runtime))
        for each in found.due if found else ():
            name = ", ".join(each.names) or f"{each.id.removeprefix('sha256:')[:12]} (superseded)"
            self._report(f"image {name}", self._images.remove(each))

    def _decide(self) -> Pruning | None:
        # Images first: a container or spec that comes to need one after this read is in the two reads that follow.
        images, runtimes = self._images.ours(), self._images.agent_runtimes()
        snapshot = self._snapshot()
        if images is None or runtimes is None or snapshot is None:
            return None
        try:
            kinds = [each.name for each in self._registry if not each.read_only]
            stored = [each for kind in kinds for each in self._store.list(kind)[0]]
        except StoreError as error:
            _log.warning("image pruning postponed", reason=str(error))
            return None
        specs = [each.spec for each in stored] + [each.status.get(INSTALLED, {}) for each in stored]
        return prune(images, snapshot, specs, self._since, self._rules, runtimes)

    def _report(self, what: str, refused: str) -> None:
        if refused:
            _log.info("image not removed", image=what, reason=refused)
            return
        self._meter.count("paddock_reaped_total", reason="image")
        message = f"removed {what}: unused for {self._rules.grace_seconds:g} s"
        try:
            self._store.record(Writes(events=(Event(self._host, "Normal", "ImagePruned", message, self._clock.now()),)))
        except StoreError as error:
            _log.warning("event not stored", message=message, reason=str(error))
