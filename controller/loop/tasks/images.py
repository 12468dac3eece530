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
        pruning = self._decide()
        self._since = pruning.since if pruning else {}
        # Runtimes first: each holds its image.
        for runtime in pruning.runtimes if pruning else ():
            self._report(f"agent runtime {volume_name(runtime.image)}", self._images.remove_agent_runtime(runtime))
        for image in pruning.due if pruning else ():
            name = ", ".join(image.names) or f"{image.id.removeprefix('sha256:')[:12]} (superseded)"
            self._report(f"image {name}", self._images.remove(image))

    def _decide(self) -> Pruning | None:
        # Images first: a container or spec that comes to need one after this read is in the two reads that follow.
        images, runtimes = self._images.ours(), self._images.agent_runtimes()
        snapshot = self._snapshot()
        if images is None or runtimes is None or snapshot is None:
            return None
        try:
            kinds = [kind.name for kind in self._registry if not kind.read_only]
            stored = [record for kind in kinds for record in self._store.list(kind)[0]]
        except StoreError as error:
            _log.warning("image pruning postponed", reason=str(error))
            return None
        specs = [record.spec for record in stored] + [record.status.get(INSTALLED, {}) for record in stored]
        return prune(images, snapshot, specs, before=self._since, rules=self._rules, runtimes=runtimes)

    def _report(self, what: str, refusal: str) -> None:
        if refusal:
            _log.info("image not removed", image=what, reason=refusal)
            return
        self._meter.count("paddock_reaped_total", reason="image")
        message = f"removed {what}: unused for {self._rules.grace_seconds:g} s"
        try:
            self._store.record(Writes(events=(Event(self._host, "Normal", "ImagePruned", message, self._clock.now()),)))
        except StoreError as error:
            _log.warning("event not stored", message=message, reason=str(error))
