"""Canary tests of the network guard: at the first need, after engine or guard were away, and periodically.

Without a sandbox with a network nothing is tested. A guard found broken counts as broken until a test finds that it
holds: neither a test that fails nor an absent engine mends a guard.

A test is a thread that ends with it, and no Keeper: passes and ticks ask for one and never wait, and it wakes the loop.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import structlog

from controller.kinds.meta import Event, ObjectRef
from controller.kinds.observed.canary import UNWATCHED, CanaryResult, CanaryTry
from controller.kinds.observed.observed import Observation
from controller.kinds.planning.plan import Deferral, Writes
from controller.plan.network.egress import UNGUARDED
from controller.policy.network.canary import canary
from controller.policy.network.egress import IMAGE
from controller.ports import Canary, Clock, Store, StoreError, Wake

CANARY_SECONDS = 5.0  # interval of checks for a test that is due
RETRY_SECONDS = 30.0
_PENDING = CanaryResult("Pending", "the network guard is being tested from inside a network")
_log = structlog.get_logger("paddock.canary")


class CanaryWatch:
    """Thread-safe. The pass calls `see` and `request_test`; `tick` is called every CANARY_SECONDS. None waits.

    `range_` is the range of our networks, `period` the seconds between tests, `host` the object of its events.
    Without a canary nothing is tested, and nothing waits for a test.
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
        self._tested_at, self._epoch = 0.0, 0
        self._stale = True  # True: test before anything else; never tested, or engine or guard were away
        self._testing: threading.Thread | None = None
        self._networked, self._awaited = False, False  # a sandbox has a network; one waits for a test
        self._away = True  # True while engine or guard are away
        self._reported, self._stopped = False, False
        self._left = True  # True: tests may have left something, also those of an earlier daemon

    def see(self, observed: Observation) -> CanaryResult:
        """Return the guard's state. While engine or guard are away, an earlier success is void."""
        with self._lock:
            if self._bird is None:
                return self._guarded
            self._away = bool(observed.blind or observed.unguarded)
            if self._away:
                self._stale, self._epoch = True, self._epoch + 1
                if not self._guarded.broken:
                    self._guarded = _PENDING
                return self._guarded
            self._networked = any(network.uid for network in observed.networks.values())
            if self._stale and (self._networked or self._awaited or self._guarded.broken):
                self._test()
            return self._guarded

    def request_test(self, deferrals: Iterable[Deferral]) -> None:
        """Test, if a deferral waits for that."""
        if self._bird is None or not any(deferral.reason == UNGUARDED for deferral in deferrals):
            return
        with self._lock:
            self._awaited = True
            if not self._away and (self._stale or self._due(RETRY_SECONDS)):
                self._test()

    def tick(self) -> None:
        """Test again when due: sooner after a failure. Clean up when no test is needed any more."""
        with self._lock:
            # Cleaned up only once nothing needs a test: until then the next one comes soon.
            unneeded = not (self._away or self._networked or self._awaited)
            if self._bird is not None and self._left and unneeded and self._testing is None:
                self._left = False
                self._begin(self._bird.clean)
            if self._guarded in (UNWATCHED, _PENDING):
                return
            # A failure may be over at any moment, and sandboxes wait for that.
            wrong = self._guarded.state != "Holds"
            is_needed = self._networked or self._awaited or self._guarded.broken
            if is_needed and self._due(min(RETRY_SECONDS, self._period) if wrong else self._period):
                self._test()

    @property
    def now(self) -> CanaryResult:
        """The guard's state as of the last test."""
        with self._lock:
            return self._guarded

    def wait(self) -> None:
        """Wait until no test is running."""
        with self._lock:
            testing = self._testing
        if testing is not None:
            testing.join()

    def stop(self) -> None:
        """Wait for the running test; start no further one."""
        with self._lock:
            self._stopped = True
        self.wait()

    def _due(self, seconds: float) -> bool:
        return not 0 <= self._clock.now() - self._tested_at < seconds

    def _test(self) -> None:
        self._left = True
        self._begin(partial(self._run, self._epoch))

    def _begin(self, work: Callable[[], None]) -> None:
        if self._testing is None and not self._stopped:
            testing = threading.Thread(target=self._done, args=(work,), name="canary", daemon=True)
            testing.start()  # it ends under the lock that the caller has
            self._testing = testing

    def _done(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._testing = None
            self._wake()

    def _run(self, epoch: int) -> None:
        assert self._bird is not None
        try:
            verdict = _judge(self._bird.observe_now(canary(), self._range))
        except Exception as error:
            _log.exception("canary failed")
            verdict = CanaryResult("Untried", f"the canary failed: {error!r}; please report this")
        with self._lock:
            self._tested_at = self._clock.now()
            before = self._guarded
            if epoch != self._epoch:
                return  # engine or guard were away meanwhile: test again
            self._stale = False
            if verdict.state == "Untried" and before.broken:
                _log.warning("network guard not testable", reason=verdict.message)
                return
            self._guarded = verdict
            self._awaited = self._awaited and verdict.state != "Holds"
        if verdict != before:
            self._report(verdict)

    def _report(self, verdict: CanaryResult) -> None:
        """Record an event of the host when the guard breaks, and when it holds again."""
        if not verdict.broken and not self._reported:
            return
        self._reported = bool(verdict.broken)
        event = Event(
            self._host, "Normal", "GuardHolds", "nothing local answers from inside networks", self._clock.now()
        )
        if verdict.broken:
            event = replace(event, type="Warning", reason="GuardBroken", message=verdict.message)
        _log.warning("network guard changed", state=verdict.state, message=event.message)
        try:
            self._store.record(Writes(events=(event,)))
        except StoreError as error:
            _log.warning("event not stored", reason=str(error))


def _judge(attempt: CanaryTry) -> CanaryResult:
    if attempt.reached:
        what = ", ".join(dict.fromkeys(attempt.reached))
        message = (
            f"network guard: {what} can be reached from inside networks; reload the guard, and check the host's rules"
        )
        return CanaryResult("Broken", message)
    if attempt.trouble:
        missing = "no such image" in attempt.trouble.lower()
        what_to_do = f"; build the image {IMAGE} (`images/build.sh egress`)" if missing else ""
        return CanaryResult("Untried", f"network guard: not testable: {attempt.trouble}{what_to_do}")
    return CanaryResult("Holds")
