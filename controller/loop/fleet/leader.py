"""Leader election: wait for the lease of this host, then renew it; and take the lease of the fleet while it is free."""

import threading
import time
from collections.abc import Callable

import structlog

from controller.loop.clock import boot_seconds
from controller.loop.systemd import ALIVE, READY, notify
from controller.ports import Lease, Meter, StoreError
from controller.processes.keeper import Keeper

_log = structlog.get_logger("paddock.leading")
WAIT_SECONDS = 0.5
RENEW_SECONDS = 2.0
REST_SECONDS = 12.0  # a lease expires, and another daemon takes it meanwhile


def wait_to_lead(lease: Lease, stopping: threading.Event, *, standby: bool = True) -> str:
    """Wait for the leader lease. Return "" once it is held; else its holder: stopped meanwhile, or `standby` is off.

    Raises StoreError if the store can't be used at the first try; later failures are retried.
    """
    holder, logged = lease.acquire(), False
    while holder and standby and not stopping.is_set():
        if not logged:
            _log.info("standby: waiting for the leader lease", holder=holder)
            logged = True
            notify(READY, "STATUS=standby: another daemon holds the leader lease")  # a start must not last so long
        notify(ALIVE)
        stopping.wait(WAIT_SECONDS)
        try:
            holder = lease.acquire()
        except StoreError as error:
            _log.warning("standby: store unreachable", error=str(error))
    return holder


class LeaderLease(Keeper):
    """Renews the leader lease until `stop`. `on_lost` is called once, when another daemon has taken it.

    `on_lapse` is called after a renewal that came too late: others may have taken over what was this one's.
    """

    name, log_name, failed_seconds = "leader-lease", "paddock.leading", RENEW_SECONDS
    first_seconds = 0.0  # what may be started elsewhere is held from the first renewal on

    def __init__(
        self, lease: Lease, meter: Meter, on_lost: Callable[[], None], on_lapse: Callable[[], None] = lambda: None
    ) -> None:
        self._lease, self._meter, self._on_lost, self._on_lapse = lease, meter, on_lost, on_lapse
        self.renewed_at = 0.0  # when the last renewal that succeeded began (CLOCK_BOOTTIME)
        super().__init__()

    def step(self) -> float | None:
        """Renew once."""
        self._meter.gauge("paddock_thread_heartbeat_timestamp_seconds", time.time(), thread="leading")
        started_at, lapses = boot_seconds(), self._lease.lapses
        try:
            is_renewed = self._lease.renew()
        except StoreError as error:
            # The next renewal that the store answers decides; until then the lease may expire by itself.
            self._meter.count("paddock_leader_lease_renew_failures_total")
            _log.warning("leader lease not renewed; retrying", error=str(error))
            return RENEW_SECONDS
        if not is_renewed:
            self._meter.count("paddock_leader_lease_renew_failures_total")
            _log.error("leader lease lost to another daemon; exiting")
            self._on_lost()
            return None
        self.renewed_at = started_at
        if self._lease.lapses > lapses:
            _log.warning("leader lease renewed late: it had expired")
            self._on_lapse()
        return RENEW_SECONDS


class FleetRole(Keeper):
    """Takes the lease of the fleet while no other host's daemon has it: then this one decides for all hosts, too."""

    name, log_name, failed_seconds = "fleet-lease", "paddock.leading", RENEW_SECONDS
    first_seconds = 0.0

    def __init__(self, lease: Lease, wake: Callable[[], None]) -> None:
        """`wake` is called when the role is taken or lost."""
        self._lease, self._changed = lease, wake
        self._rests_until = 0.0
        self._led = False
        super().__init__()

    def leads(self) -> bool:
        """Return True while the lease is held. No I/O."""
        return not self._rests() and self._lease.is_held()

    def step_aside(self) -> None:
        """Leave the role to another host for a while: this one can't do now what it asks for."""
        self._rests_until = boot_seconds() + REST_SECONDS

    def _rests(self) -> bool:
        return boot_seconds() < self._rests_until

    def stop(self) -> None:
        """Release the lease for the next daemon."""
        super().stop()
        self._lease.release()

    def step(self) -> float | None:
        """Renew the lease, or try to take it."""
        led = self._led
        try:
            # One that rests renews no more: its lease expires, and another daemon takes it.
            leads = not self._rests() and (self._lease.renew() if led else not self._lease.acquire())
        except StoreError as error:
            _log.warning("fleet lease not renewed; retrying", error=str(error))
            leads = self._lease.is_held()
        if leads != led:
            loss_message = (
                "fleet lease left to another daemon" if self._rests() else "fleet lease lost to another daemon"
            )
            _log.info("fleet lease taken" if leads else loss_message)
            self._led = leads
            self._changed()
        return RENEW_SECONDS
