"""Prober: runs probes when they are due, and keeps their tallies. plan/sandbox/probes.py decides on them.

The planner sets the probes of each object; each is repeated until the planner drops it. Results are part of the next
snapshot, and wake the loop only when they change something. Without probes there is no thread.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Container as Holds
from dataclasses import dataclass, replace
from types import MappingProxyType

import structlog

from controller.kinds.planning.plan import ProbeSchedule
from controller.kinds.runtime.probe import ProbeResult, ProbeState, Watch
from controller.plan.sandbox.probes import add_probe_result
from controller.ports import Clock, Probes, Wake
from controller.processes.keeper import Keeper

_log = structlog.get_logger("paddock.prober")
_AT_A_TIME = 8
# A longer probe frees its slot: the engine hangs, or the sandbox is slow.
_STALLS_SECONDS = 2.0


@dataclass(eq=False, slots=True)
class _Entry:
    """One probe that is repeated until it is dropped."""

    uid: str
    watch: Watch
    on: bool = True


class Prober(Keeper):
    """Thread-safe. At most `at_a_time` probes run at once, each in a thread of its own; the others are queued.

    Those that last longer than `stalls_seconds` are not counted: no probe waits for a sandbox that hangs.
    `ticks` are monotonic seconds: clock jumps do not change a period.
    """

    name, log_name = "prober", "paddock.prober"

    def __init__(
        self,
        probes: Probes,
        *,
        clock: Clock,
        wake: Wake,
        ticks: Callable[[], float] = time.monotonic,
        at_a_time: int = _AT_A_TIME,
        stalls_seconds: float = _STALLS_SECONDS,
        threads: bool = True,
    ) -> None:
        """Without `threads`, probes are run by `run_due` alone, in the caller's thread."""
        self._probes, self._clock, self._wake, self._ticks = probes, clock, wake, ticks
        self._at_a_time, self._threads, self._stalls_seconds = at_a_time, threads, stalls_seconds
        self._lock = threading.Lock()
        self._probed: dict[str, ProbeState] = {}
        self._entries: dict[str, list[_Entry]] = {}
        self._due: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()
        self._running: dict[_Entry, float] = {}  # start of each, in `ticks`
        self._is_started = False
        super().__init__()

    def set_probes(self, probing: Iterable[ProbeSchedule], *uid_sets: Holds[str]) -> None:
        """Replace the probes of these objects; drop those of objects whose uids are in none of `uid_sets`."""
        with self._lock:
            for schedule in probing:
                self._set(schedule.ref.uid, schedule.watches)
            for uid in [uid for uid in self._entries if not any(uid in uids for uids in uid_sets)]:
                self._set(uid, ())
            if self._due and self._threads and not self._is_started and not self.stopping:
                self.start()
                self._is_started = True
        self.wake()

    def view(self) -> Mapping[str, ProbeState]:
        """Return the tallies so far, by the object's uid."""
        with self._lock:
            return MappingProxyType(dict(self._probed))

    def next_due(self) -> float | None:
        """Return when the next probe is due, in `ticks`; None without probes."""
        with self._lock:
            return self._due[0][0] if self._due else None

    def run_due(self) -> None:
        """Run the probes that are due, one after another, in this thread."""
        while (entry := self._take()) is not None:
            self._ask(entry)

    def step(self) -> float | None:
        """Start the probes that are due, as long as a slot is free. Those that run when it stops count no more."""
        while self._has_slot() and (entry := self._take()) is not None:
            try:
                threading.Thread(target=self._ask, args=(entry,), name="probe", daemon=True).start()
            except RuntimeError:  # no thread can be started: it is due at the next step
                with self._lock:
                    del self._running[entry]
                    if entry.on:
                        self._push(entry, self._ticks())
                raise
        with self._lock:
            return self._wait_seconds()

    def _set(self, uid: str, watches: tuple[Watch, ...]) -> None:
        """Replace an object's probes. An unchanged probe goes on, with its tally."""
        before = self._entries.pop(uid, [])
        unchanged = [entry for entry in before if entry.watch in watches]
        for entry in before:
            entry.on = entry in unchanged
        tallies = self._probed.pop(uid).tallies if uid in self._probed else {}
        # A dropped probe may be due far in the future: do not wait for it.
        if len(unchanged) < len(before):
            self._due = [due_entry for due_entry in self._due if due_entry[2].on]
            heapq.heapify(self._due)
        if not watches:
            return
        watched = {entry.watch for entry in unchanged}
        fresh = [_Entry(uid, watch) for watch in watches if watch not in watched]
        for entry in fresh:
            self._push(entry, self._ticks() + self._delay(entry.watch))
        self._entries[uid] = unchanged + fresh
        names = {entry.watch.name for entry in unchanged}
        kept_tallies = {name: tally for name, tally in tallies.items() if name in names}
        self._probed[uid] = ProbeState(watches[0].run, watches, MappingProxyType(kept_tallies))

    def _delay(self, watch: Watch) -> float:
        return min(max(0.0, watch.due - self._clock.now()), watch.probe.initial_delay_seconds)

    def _push(self, entry: _Entry, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), entry))

    def _has_slot(self) -> bool:
        with self._lock:
            return len(self._places_held()) < self._at_a_time

    def _wait_seconds(self) -> float | None:
        """Seconds until a probe is due and a slot is free; None: until it is woken."""
        if not self._due:
            return None
        slot_starts = self._places_held()
        at = min(slot_starts) + self._stalls_seconds if len(slot_starts) >= self._at_a_time else self._due[0][0]
        return max(0.0, at - self._ticks())

    def _places_held(self) -> list[float]:
        """Return the start times of probes that hold a slot."""
        since = self._ticks() - self._stalls_seconds
        return [started_at for started_at in self._running.values() if started_at > since]

    def _take(self) -> _Entry | None:
        with self._lock:
            if self.stopping or not self._due or self._due[0][0] > self._ticks():
                return None
            entry = heapq.heappop(self._due)[2]
            self._running[entry] = self._ticks()
            return entry

    def _ask(self, entry: _Entry) -> None:
        started_at = self._ticks()
        try:
            result = self._probes.probe(entry.watch)
        except Exception as error:  # a bug must neither end a sandbox's probing nor count against it
            _log.exception("probe raised", uid=entry.uid, probe=entry.watch.name)
            result = ProbeResult("unknown", f"{type(error).__name__}: {error}; please report this")
        has_news = self._record(entry, result, started_at)
        self.wake()  # a slot is free
        if has_news:
            self._wake()

    def _record(self, entry: _Entry, result: ProbeResult, started_at: float) -> bool:
        """Count a result and schedule the next run. Return True if it changed something."""
        watch = entry.watch
        with self._lock:
            del self._running[entry]
            if not entry.on or self.stopping:
                return False
            self._push(entry, max(self._ticks(), started_at + watch.probe.period_seconds))
            probed = self._probed[entry.uid]
            before = probed.tallies.get(watch.name)
            after = add_probe_result(before, result, watch.probe)
            if after is before:
                return False
            self._probed[entry.uid] = replace(probed, tallies=MappingProxyType({**probed.tallies, watch.name: after}))
            return True
