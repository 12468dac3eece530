"""Events when a sandbox, or the engine's disk, comes near a limit, and when it is below again."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import FolderUse, LayerUsage, UsageSample
from controller.kinds.planning.plan import Writes
from controller.kinds.planning.snapshot import Snapshot
from controller.plan.sandbox.disk_limit import limit_of
from controller.policy.host.health import WELL, Health, ThresholdCrossing, judge, thresholds
from controller.ports import Clock, Store, StoreError

_log = structlog.get_logger("paddock.health")
HEALTH_SECONDS = 15.0
# Checks take at most this share of a processor: with hundreds of sandboxes they are less frequent.
_SHARE = 0.002
_TEXTS = {
    "memory": "memory",
    "cpu": "CPU time",
    "pids": "processes and threads",
    "disk": "disk",
    "layer": "disk",
    "folder": "in-memory folder",
}
_NAMES = {"memory": "Memory", "cpu": "Cpu", "pids": "Pids", "disk": "Disk", "layer": "Disk", "folder": "Folder"}


class HealthWatch:
    """`look` is called every HEALTH_SECONDS. State is kept in memory: a restart reports near limits again.

    `disk` returns the used share of the engine's disk (None: unreadable), an event of `host`. `layers` are the sizes
    of writable layers by container id, `folders` reads the in-memory folders of a container. `spent` is this thread's
    processor time in seconds.
    """

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot | None],
        samples: Callable[[], Mapping[str, UsageSample]],
        store: Store,
        clock: Clock,
        host: ObjectRef,
        disk: Callable[[], float | None],
        layers: Callable[[], Mapping[str, LayerUsage]] = dict,
        folders: Callable[[Container], Sequence[FolderUse]] = lambda _: (),
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._snapshot, self._samples, self._store = snapshot, samples, store
        self._clock, self._host, self._disk, self._layers, self._folders = clock, host, disk, layers, folders
        self._spent = spent
        self._checked = 0.0
        self._due = 0.0
        self._known: Mapping[tuple[str, object], Health] = {}

    def observe_now(self) -> None:
        """Judge the newest samples, and record events of changes. After a store failure they are recorded next time."""
        now, started_at = self._clock.now(), self._spent()
        if self._checked <= now < self._due:
            return
        self._look()
        self._checked, self._due = now, now + (self._spent() - started_at) / _SHARE

    def _look(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        samples = self._samples()
        # What is frozen stays as near to its limits as it was.
        frozen = {uid for uid, sample in samples.items() if sample.container.state is State.PAUSED}
        awake = {uid: sample for uid, sample in samples.items() if uid not in frozen}
        health_by_key = {key: health for key, health in self._known.items() if key[0] in frozen}
        events: list[Event] = []
        for key, ref, shares, limits in self._measurements(snapshot, awake):
            health_by_key[key], crossed = judge(self._known.get(key, WELL), shares)
            events += [_event(ref, crossing, limits, self._clock.now()) for crossing in crossed]
        try:
            if events:
                self._store.record(Writes(events=tuple(events)))
        except StoreError as error:
            _log.warning("limit events not stored; retrying", reason=str(error))
            return
        self._known = health_by_key

    def _measurements(
        self, snapshot: Snapshot, samples: Mapping[str, UsageSample]
    ) -> Iterator[tuple[tuple[str, object], ObjectRef, Mapping[str, float | None], Mapping[str, str]]]:
        """Yield (key, object, use by limit, limits as text) of each sandbox and the host."""
        layers = self._layers()
        for uid, sample in samples.items():
            sandbox = snapshot.desired.sandboxes.get(uid)
            if sandbox is not None:  # not a pool's member
                run = sample.container.run
                layer = layers.get(sample.container.id)
                most = limit_of(snapshot.desired, uid)  # may be exceeded where it is not enforced
                shares = {**shares_of(sample), "layer": _share(layer.used_bytes if layer else None, most)}
                limits = {**_limits(sample), "layer": f"its limit of {format_bytes(most)}"}
                yield (uid, run), sandbox.obj.ref, shares, limits
                for folder in self._folders(sample.container):
                    limits = {"folder": f"`{folder.path}` ({format_bytes(folder.size_bytes)})"}
                    yield (uid, (run, folder.path)), sandbox.obj.ref, {"folder": folder.share}, limits
        yield (self._host.uid, None), self._host, {"disk": self._disk()}, {"disk": "the engine's file system"}


def shares_of(sample: UsageSample) -> Mapping[str, float | None]:
    """Return use as a share of each limit; None without a limit."""
    usage = sample.usage
    return {
        "memory": _share(usage.memory_working_set_bytes, usage.memory_limit_bytes),
        "cpu": _share(sample.cpu_cores, usage.cpu_limit_cores),
        "pids": _share(usage.pids, usage.pids_limit),
    }


def _share(amount: float | None, limit: float | None) -> float | None:
    return amount / limit if limit and amount is not None else None


def _limits(sample: UsageSample) -> Mapping[str, str]:
    usage = sample.usage
    return {
        "memory": f"its limit of {format_bytes(usage.memory_limit_bytes or 0)}",
        "cpu": f"its limit of {format_cpu(round((usage.cpu_limit_cores or 0) * 1000))}",
        "pids": f"its limit of {usage.pids_limit}",
    }


def _event(ref: ObjectRef, crossed: ThresholdCrossing, limits: Mapping[str, str], now: float) -> Event:
    word, of = _TEXTS[crossed.resource], limits.get(crossed.resource, "its limit")
    near, clear = thresholds(crossed.resource)
    if crossed.near:
        message = f"{word}: over {near:.0%} of {of} is in use"
        return Event(ref, "Warning", f"{_NAMES[crossed.resource]}NearLimit", message, at=now)
    message = f"{word}: less than {clear:.0%} of {of} is in use again"
    return Event(ref, "Normal", f"{_NAMES[crossed.resource]}BelowLimit", message, at=now)
