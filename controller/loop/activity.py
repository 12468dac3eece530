"""Use of sandboxes now: written by API streams, read by each reconcile pass. In memory; the planner stores it."""

import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Container as Holds
from dataclasses import replace
from types import MappingProxyType

from controller.kinds.observed.activity import Activity, CpuSample
from controller.kinds.runtime.run import Run
from controller.ports import Clock

_NONE = Activity()


class ActivityLog:
    """ports.UseTracker. Thread-safe; an entry stays the same Python object until something happens.

    An exec and the idle reaper meet under one lock. `begin` before `hold` makes `hold` fail: the pass is planned again.
    `begin` after `hold` finds the run held, and waits for the next run.
    """

    def __init__(self, clock: Clock, ticks: Callable[[], float] = time.monotonic) -> None:
        """`ticks` are seconds of a clock that nobody sets."""
        self._clock, self._ticks = clock, ticks
        self._used: dict[str, float] = {}  # the ticks of the last uses
        self._changed = threading.Condition()
        self._entries: dict[str, Activity] = {}
        self._held: dict[str, Run] = {}
        self._passes = 0
        self._queued: frozenset[str] = frozenset()

    def begin(self, uid: str, *, wakes: bool) -> None:
        """Count a stream that begins; `wakes` resumes a suspended sandbox."""
        self._step(uid, 1, wakes)

    def end(self, uid: str, *, wakes: bool) -> None:
        """Count a stream that ended."""
        self._step(uid, -1, wakes)

    def _step(self, uid: str, by: int, wakes: bool) -> None:
        with self._changed:
            activity = self._entries.get(uid, _NONE)
            opened, asking = activity.open + by, activity.asking + (by if wakes else 0)
            self._used[uid] = self._ticks()
            self._entries[uid] = replace(activity, last_at=self._clock.now(), open=opened, asking=asking)

    def contexts(self, uid: str, run: Run, contexts: tuple[tuple[str, str], ...]) -> None:
        """Note the code contexts of a run. That is no use, and makes a new entry only where they have changed."""
        with self._changed:
            activity = self._entries.get(uid, _NONE)
            if (activity.contexts_run, activity.contexts) != (run, contexts):
                self._entries[uid] = replace(activity, contexts_run=run, contexts=contexts)

    def stopping_run(self, uid: str) -> Run | None:
        """Return the run of that object that is being stopped, or was stopped last."""
        with self._changed:
            return self._held.get(uid)

    @property
    def passes(self) -> int:
        """Number of reconcile passes that have ended."""
        return self._passes

    def wait(self, passes: int, seconds: float, uid: str = "") -> bool:
        """Wait until more than `passes` passes have ended, and that object is not queued; False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._passes > passes and uid not in self._queued, seconds)

    def pass_ended(self, queued: frozenset[str] = frozenset()) -> None:
        """Count a pass that ended, and wake those that wait for it, but for objects that it left in their queue."""
        with self._changed:
            self._passes += 1
            self._queued = queued
            self._changed.notify_all()

    def view(self, stored_uids: Holds[str]) -> Mapping[str, Activity]:
        """Return the activity by uid. Objects that are neither stored nor in use are forgotten."""
        with self._changed:
            for unused_uid in [
                uid for uid, activity in self._entries.items() if uid not in stored_uids and not activity.open
            ]:
                del self._entries[unused_uid]
                self._used.pop(unused_uid, None)
                self._held.pop(unused_uid, None)
            return MappingProxyType(dict(self._entries))

    def hold(self, runs: Mapping[str, Run], observed_activity: Mapping[str, Activity]) -> bool:
        """Refuse new uses of these runs. Return False, and hold nothing, if one was used since `observed_activity`."""
        with self._changed:
            fresh = {uid: run for uid, run in runs.items() if self._held.get(uid) != run}
            if any(self._entries.get(uid) is not observed_activity.get(uid) for uid in fresh):
                return False
            self._held.update(fresh)
            return True

    def clock_jumped(self, seconds: float, recorded: Mapping[str, tuple[float, ...]]) -> None:
        """Move the last uses and the CPU samples with the clock, which jumped by `seconds`.

        `recorded` are the times by the clock before the jump that count beside those known here: of the last use as it
        is stored, and of the run's start.
        """
        with self._changed:
            now, ticks = self._clock.now(), self._ticks()
            for uid in self._entries.keys() | recorded.keys():
                activity, times = self._entries.get(uid, _NONE), recorded.get(uid, ())
                shifted = [use_at + seconds for use_at in times if use_at and use_at not in activity.void]
                if uid in self._used:
                    shifted.append(now - (ticks - self._used[uid]))
                if not shifted:
                    continue
                last_at = min(max(shifted), now)
                self._used[uid] = ticks - (now - last_at)
                mark, cpu = (
                    sample and replace(sample, at=max(last_at, now - (ticks - sample.ticks)))
                    for sample in (activity.mark, activity.cpu)
                )
                self._entries[uid] = replace(activity, last_at=last_at, mark=mark, cpu=cpu, void=times)

    def release(self, runs: Mapping[str, Run]) -> None:
        """Allow uses again: these runs are not stopped after all."""
        with self._changed:
            for uid in runs:
                self._held.pop(uid, None)

    def record_sample(self, uid: str, sample: CpuSample, since: float) -> None:
        """Keep a CPU sample. The first one of its run since `since` is the mark."""
        with self._changed:
            activity, sample = self._entries.get(uid, _NONE), replace(sample, ticks=self._ticks())
            earlier = [former for former in (activity.mark, activity.cpu) if former is not None]
            fit = [former for former in earlier if former.run == sample.run and former.at >= since]
            self._entries[uid] = replace(activity, mark=fit[0] if fit else sample, cpu=sample)
