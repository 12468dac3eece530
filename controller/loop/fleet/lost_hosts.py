"""Watch over the hosts' leases: while one has expired, its sandboxes and runs say that nobody can tell how they are."""

from dataclasses import replace

import structlog

from controller.kinds.planning.plan import Writes
from controller.kinds.workflowrun import KIND as RUN
from controller.plan.fleet.lost_hosts import away, lost_hosts, lost_statuses
from controller.ports import Clock, Store, StoreError
from controller.ports.fleet import Fleet

LOST_SECONDS = 5.0
_log = structlog.get_logger("paddock.fleet")


class LostHosts:
    """`observe_now` is called every LOST_SECONDS, and does nothing unless this daemon leads."""

    def __init__(self, store: Store, place: Fleet, clock: Clock) -> None:
        self._store, self._place, self._clock = store, place, clock
        self._lost_before: frozenset[str] = frozenset()
        self._away_before: frozenset[str] = frozenset()

    def observe_now(self) -> None:
        """Write the statuses of lost hosts' sandboxes and runs. After a store failure they are written next time."""
        if not self._place.leads():
            return
        try:
            away_now = away(self._store.leases())
            lost = lost_hosts(away_now, self._away_before, self._place.host)
            self._away_before = away_now
            if lost:
                sandboxes = self._store.list("Sandbox", lean=True)[0]
                if statuses := tuple(lost_statuses(sandboxes, lost, self._clock.now())):
                    self._store.record(Writes(statuses=statuses))
                self._write_runs(lost)
        except StoreError as error:
            _log.warning("lost hosts not recorded; retrying", reason=str(error))
            return
        self._report(lost)

    def _write_runs(self, lost: frozenset[str]) -> None:
        """Write the statuses of runs: of what is stored now, for a daemon that is back writes the progress there."""
        now = self._clock.now()
        due = [status.ref for status in lost_statuses(self._store.list(RUN.name)[0], lost, now)]
        if not due:
            return
        with self._store.transaction() as transaction:
            runs = [transaction.get(ref.kind, ref.namespace, ref.name) for ref in due]
            for obj in (run for run in runs if run is not None):
                for write in lost_statuses((obj,), lost, now):
                    transaction.put(replace(obj, status=write.status))

    def _report(self, lost: frozenset[str]) -> None:
        for name in sorted(lost - self._lost_before):
            _log.warning("host lost: its daemon is away", host=name)
        for name in sorted(self._lost_before - lost):
            _log.info("host is back", host=name)
        self._lost_before = lost
