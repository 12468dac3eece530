"""Store subsystem: become the leader, then open the store."""

import os
import pwd
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from controller.app.core import Core
from controller.app.errors import CannotStart, StoppedWaiting
from controller.kinds.access.audit import AuditEntry
from controller.kinds.host import LEADING
from controller.kinds.planning.binding import default_host
from controller.loop.fleet.leader import FleetRole, LeaderLease, wait_to_lead
from controller.metrics.meter import PrometheusMeter
from controller.ports import Lease, StoreError
from controller.ports.fleet import SINGLE, Fleet, ManyHosts
from controller.settings import Settings
from controller.store.database import StoreLease
from controller.store.sql_store import SqlStore


def open_store(
    core: Core, stopping: threading.Event, fail: Callable[[], None]
) -> tuple[SqlStore, StoreLease, LeaderLease]:
    """Become the leader, then open and migrate the store. `fail` is called when the leader lease is lost.

    Raises CannotStart; StoppedWaiting.
    """
    store = SqlStore(core.settings.database(), meter=core.meter, writer=core.settings.place)
    core.undo.callback(store.close)
    lease = store.lease(f"host/{core.settings.host_name}" if core.settings.is_host else core.settings.place)
    core.undo.callback(lease.release)
    _lead(lease, stopping, standby=core.settings.standby)
    leading = LeaderLease(lease, core.meter, fail, core.waker.wake_now)
    core.undo.callback(leading.stop)
    leading.start()  # a migration may take longer than the lease
    try:
        store.open()
    except StoreError as error:
        raise CannotStart(f"store: can't be used: {error}") from error
    _watch_connections(core.meter, store)
    core.meter.watch("paddock_leader", lambda: float(lease.is_held()))
    return store, lease, leading


@dataclass(frozen=True, slots=True)
class Membership:
    """This host among those of its store. What the holder of the lease `fleet` writes goes to `store`.

    On a single host both are the host's own. `step_aside` leaves that lease to another host for a while.
    """

    place: Fleet
    store: SqlStore
    may_act: Callable[[], bool]
    step_aside: Callable[[], None] = lambda: None


def join_fleet(core: Core, store: SqlStore, lease: StoreLease) -> Membership:
    """Return this daemon's place among the hosts of its store; with that role, take the free lease of the fleet."""
    settings = core.settings
    if settings.scheduler == "single":
        core.meter.watch("paddock_fleet_leader", lambda: float(lease.is_held()))
        return Membership(SINGLE, store, lease.is_held)
    default = default_host(settings.scheduler)
    if "fleet" not in settings.roles:
        core.meter.watch("paddock_fleet_leader", lambda: 0.0)
        return Membership(ManyHosts(settings.place, default, _never, keeps_sandboxes=settings.is_host), store, _never)
    leading_lease = SqlStore(settings.database(), meter=core.meter).lease(LEADING, holder=lease.holder)
    shared, role = store.writing_as(leading_lease), FleetRole(leading_lease, core.waker.wake)
    core.undo.callback(role.stop)
    role.start()
    core.meter.watch("paddock_fleet_leader", lambda: float(role.leads()))
    place = ManyHosts(settings.place, default, role.leads)
    return Membership(place, shared, role.leads, role.step_aside)


def _never() -> bool:
    return False


def follow_hosts(core: Core, fleet: Membership, committed: Callable[[], None]) -> None:
    """Wake the reconcile loop and call `committed` after each commit of another host's daemon, if there are others."""
    if not fleet.place.shares_store:
        return

    def woken() -> None:
        committed()
        core.waker.wake()

    core.undo.callback(fleet.store.follow(woken, core.traces.hear))


def _lead(lease: Lease, stopping: threading.Event, *, standby: bool) -> None:
    try:
        holder = wait_to_lead(lease, stopping, standby=standby)
    except StoreError as error:
        raise CannotStart(f"store: can't be used: {error}") from error
    if holder and stopping.is_set():
        raise StoppedWaiting
    if holder:
        raise CannotStart(
            f"leader lease: held by another Paddock daemon: {holder}; stop it, set another PADDOCK_STATE_DIR or"
            " PADDOCK_DATABASE_URL, or let this one wait as a standby (PADDOCK_STANDBY=true)"
        )


def _watch_connections(meter: PrometheusMeter, store: SqlStore) -> None:
    for state in ("checked_in", "checked_out", "overflow"):
        now = partial(lambda state: float(getattr(store.connections(), state)), state)
        meter.watch("paddock_store_connections", now, state=state)
    meter.watch("paddock_store_connections_max", lambda: float(store.connections().most))


def lineage_file(settings: Settings) -> Path:
    """Return the file by which a restored store is noticed."""
    return settings.state_dir / "lineage.json"


def restore(settings: Settings, file: Path) -> str:
    """Replace the store by a backup. Return what was done, as a message. Raises CannotStart.

    The restored audit log gets an entry of it, in a chain of such commands on this host.
    """
    store = SqlStore(settings.database(), writer=f"offline/{settings.host_name}")
    try:
        lease = store.lease()
        try:
            holder = lease.acquire()
            if holder:
                raise CannotStart(f"store: in use by a Paddock daemon: {holder}; stop it first, then restore")
            done = store.restore(file, stamp=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
            confirm = f"check the containers without an object then, and confirm by removing {lineage_file(settings)}"
            return f"{done}{_record(store, 'restore')}; start the daemon now; {confirm}"
        finally:
            lease.release()
    except StoreError as error:
        raise CannotStart(f"nothing was restored: {error}") from error


def _record(store: SqlStore, verb: str) -> str:
    """Add what was done without a daemon to the audit log. Return "", or that it failed."""
    uid = os.getuid()
    try:
        actor = f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        actor = f"uid {uid}"
    try:
        store.open()
        store.audit.append([AuditEntry(time.time(), actor, "offline", verb)])
    except StoreError as error:
        return f"; the audit log has no entry of it: {error}"
    finally:
        store.close()
    return ""
