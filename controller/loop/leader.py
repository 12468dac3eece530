"""Being the one daemon that acts for a store: waiting for it, and keeping it."""

import threading
import time
from collections.abc import Callable

import structlog

from controller.loop.systemd import ALIVE, READY, notify
from controller.ports import Lease, Meter, StoreError

_log = structlog.get_logger("paddock.leading")
WAIT_SECONDS = 0.5
RENEW_SECONDS = 2.0


def wait_to_lead(lease: Lease, stopping: threading.Event, *, standby: bool = True) -> str:
    """Wait until the lease is ours: "" then. Else who has it: told to stop meanwhile, or `standby` is off.

    Raises StoreError when the store can't be used at first; once it waits, it waits for the store as well.
    """
    holder, told = lease.acquire(), False
    while holder and standby and not stopping.is_set():
        if not told:
            _log.info(f"waiting: another daemon ({holder}) acts for this store; this one takes over when it ends")
            told = True
            notify(READY, "STATUS=waiting: another daemon acts for this store")  # a start must not last so long
        notify(ALIVE)
        stopping.wait(WAIT_SECONDS)
        try:
            holder = lease.acquire()
        except StoreError as error:
            _log.warning("waiting: the store can't be used now", error=str(error))
    return holder


class Leading:
    """Renews the lease until `stop`. `on_lost` is called once, when another daemon has it: act no more, end."""

    def __init__(self, lease: Lease, meter: Meter, on_lost: Callable[[], None]) -> None:
        self._lease, self._meter, self._on_lost = lease, meter, on_lost
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leading", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(RENEW_SECONDS):
            self._meter.gauge("paddock_thread_heartbeat_timestamp_seconds", time.time(), thread="leading")
            try:
                kept = self._lease.renew()
            except StoreError as error:
                # Whoever may have it by now decides when the store answers again; until then `held` runs out.
                self._meter.count("paddock_leader_lease_renew_failures_total")
                _log.warning("the lease was not renewed; tried again", error=str(error))
                continue
            if not kept:
                self._meter.count("paddock_leader_lease_renew_failures_total")
                _log.error("another daemon acts for this store: this one ends")
                self._on_lost()
                return
