"""When the canary tries, and what is known of it: at the first need, after engine or guard were away, and now and then.

A host without a sandbox that has a network needs none of it, and nothing is done there. What was found broken counts
as broken until a try finds that it holds: neither a try that fails nor an engine that was away mends a guard.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import structlog

from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.canary import UNWATCHED, Guarded, Sighting
from controller.kinds.observed.observed import Observation
from controller.kinds.planning.plan import Deferral, Writes
from controller.plan.network.egress import UNGUARDED
from controller.policy.network.canary import canary
from controller.policy.network.egress import IMAGE
from controller.ports import Canary, Clock, Store, StoreError, Wake

CANARY_SECONDS = 5.0  # how often it is asked whether a try is due
RETRY_SECONDS = 30.0
_PENDING = Guarded("Pending", "whether the guard holds is just being tried from inside a network")
_log = structlog.get_logger("paddock.canary")


class CanaryWatch:
    """Thread-safe. `see` and `heed` are the turn's, `tick` is called every CANARY_SECONDS; none of them waits.

    `range_` is what networks are taken from, `period` how often it is tried (seconds), `host` what it is told of.
    Without a canary nothing is tried, and nothing is held up for it.
    """

    def __init__(
        self,
        bird: Canary | None,
        store: Store,
        clock: Clock,
        wake: Wake,
        host: ObjectRef,
        *,
        range_: str,
        period: float,
    ) -> None:
        self._bird, self._range, self._period, self._store = bird, range_, period, store
        self._clock, self._wake, self._host = clock, wake, host
        self._lock = threading.Lock()
        self._guarded = UNWATCHED if bird is None else _PENDING
        self._tried_at, self._epoch = 0.0, 0
        self._stale = True  # whether it is to be tried anew before anything else: it never was, or something was away
        self._trying: threading.Thread | None = None
        self._networked, self._awaited = False, False  # whether a sandbox has a network; whether one waits for a try
        self._away = True  # whether engine or guard are
        self._told, self._stopped = False, False
        self._left = True  # whether tries may have left anything: this daemon's, or those of one before it

    def see(self, observed: Observation) -> Guarded:
        """What is known now. While the engine can't be seen, or the guard is away, it is forgotten that it held."""
        with self._lock:
            if self._bird is None:
                return self._guarded
            self._away = bool(observed.blind or observed.unguarded)
            if self._away:
                self._stale, self._epoch = True, self._epoch + 1
                if not self._guarded.broken:
                    self._guarded = _PENDING
                return self._guarded
            self._networked = any(each.uid for each in observed.networks.values())
            if self._stale and (self._networked or self._awaited or self._guarded.broken):
                self._try()
            return self._guarded

    def heed(self, deferrals: Iterable[Deferral]) -> None:
        """Try, if something waits for that."""
        if self._bird is None or not any(each.reason == UNGUARDED for each in deferrals):
            return
        with self._lock:
            self._awaited = True
            if not self._away and (self._stale or self._due(RETRY_SECONDS)):
                self._try()

    def tick(self) -> None:
        """Try again when it is time: soon, where something is wrong. Where nothing needs it any more, clean up."""
        with self._lock:
            unneeded = not (self._away or self._networked or self._awaited)
            if self._bird is not None and self._left and unneeded and self._trying is None:
                self._left = False
                self._begin(self._bird.clean)
            if self._guarded in (UNWATCHED, _PENDING):
                return
            wrong = self._guarded.state != "Holds"
            asked = self._networked or self._awaited or self._guarded.broken
            if asked and self._due(min(RETRY_SECONDS, self._period) if wrong else self._period):
                self._try()

    @property
    def now(self) -> Guarded:
        """What is known now."""
        with self._lock:
            return self._guarded

    def wait(self) -> None:
        """Wait until no try goes on."""
        with self._lock:
            trying = self._trying
        if trying is not None:
            trying.join()

    def stop(self) -> None:
        """Let the last try end; none comes after it."""
        with self._lock:
            self._stopped = True
        self.wait()

    def _due(self, seconds: float) -> bool:
        return not 0 <= self._clock.now() - self._tried_at < seconds

    def _try(self) -> None:
        self._left = True
        self._begin(partial(self._run, self._epoch))

    def _begin(self, work: Callable[[], None]) -> None:
        if self._trying is None and not self._stopped:
            self._trying = threading.Thread(target=self._done, args=(work,), name="canary", daemon=True)
            self._trying.start()

    def _done(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._trying = None
            self._wake()

    def _run(self, epoch: int) -> None:
        assert self._bird is not None
        try:
            found = _judged(self._bird.look(canary(), self._range))
        except Exception as error:
            _log.exception("the canary failed")
            found = Guarded("Untried", f"the canary failed: {error!r}; please report this")
        with self._lock:
            self._tried_at = self._clock.now()
            before = self._guarded
            if epoch != self._epoch:
                return  # what was tried was another engine, or another guard: it is tried again
            self._stale = False
            if found.state == "Untried" and before.broken:
                _log.warning("whether the guard is mended can't be tried", words=found.words)
                return
            self._guarded = found
            self._awaited = self._awaited and found.state != "Holds"
        if found != before:
            self._tell(found)

    def _tell(self, found: Guarded) -> None:
        """A broken guard is an event of the host, and so is one that holds again."""
        if not found.broken and not self._told:
            return
        self._told = bool(found.broken)
        event = Event(self._host, "Normal", "GuardHolds", "nothing local answers inside networks", self._clock.now())
        if found.broken:
            event = replace(event, type="Warning", reason="GuardBroken", message=found.words)
        _log.warning("the guard of networks", state=found.state, words=event.message)
        try:
            self._store.record(Writes(events=(event,)))
        except StoreError as error:
            _log.warning("the event is not stored", reason=str(error))


def _judged(found: Sighting) -> Guarded:
    if found.reached:
        what = ", ".join(dict.fromkeys(found.reached))
        words = f"from inside networks of ours {what} can be reached; load the guard again, and see the host's rules"
        return Guarded("Broken", words)
    if found.trouble:
        missing = "no such image" in found.trouble.lower()
        what_to_do = f"; it takes the image {IMAGE} (`images/build.sh egress`)" if missing else ""
        return Guarded("Untried", f"whether the guard holds can't be tried: {found.trouble}{what_to_do}")
    return Guarded("Holds")
