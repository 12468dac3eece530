"""Locations of sandboxes: the host that runs one, and the address of that host's daemon."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.kinds.host import KIND as HOST
from controller.kinds.host import LEADING, STOPPED, lease_of
from controller.kinds.meta import stored_condition
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import LeaseState, Store
from controller.service import errors
from controller.service.sources.host import daemon_reachable


@dataclass(frozen=True, slots=True)
class Location:
    """The host of one object of this uid; empty: none yet, for the reason `waits`, if it is known.

    `address` is that of another host's daemon, if known. Not `is_known`: there is no such host.
    """

    uid: str
    host: str
    address: str = ""
    waits: str = ""
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class OtherHost:
    """Another host of the store, and the address of its daemon. `away` says why that can't answer; empty: it may."""

    name: str
    address: str
    away: str = ""


class Locations:
    """Answers from the store, for the daemon of `host`; `default` is the host of objects that name none.

    `name` is that daemon's own, as its certificate has it: the host's, unless it is no host's.
    """

    def __init__(self, store: Store, host: str, default: str, name: str = "") -> None:
        self.host, self.name = host, name or host
        self._store, self._default = store, default

    @property
    def keeps_host(self) -> bool:
        """Return True if the daemon keeps a host: it has sandboxes, volumes and images of its own."""
        return self.name == self.host

    def of(self, kind: str, namespace: str, name: str) -> Location | None:
        """Return the location of an object; None: there is none. Raises ServiceUnavailable if the store fails."""
        with errors.translate_store_errors():
            obj = self._store.get(kind, namespace, name)
            if obj is None:
                return None
            host = host_of(obj, self._default)
            if host == UNBOUND:
                return Location(obj.uid, host, waits=stored_condition(obj, "Scheduled").get("message", ""))
            if host == self.host:
                return Location(obj.uid, host)
            stored = self._store.get(HOST.name, "", host)
            address = str(stored.status.get("address") or "") if stored else ""
            return Location(obj.uid, host, address, is_known=stored is not None or self._is_held(host))

    def leader(self) -> Location | None:
        """Return the host that leads the others; None: none does now. Raises ServiceUnavailable if the store fails."""
        with errors.translate_store_errors():
            leases = {
                lease_state.name: lease_state for lease_state in self._store.leases() if lease_state.seconds_left > 0
            }
            leading = leases.get(LEADING)
            for host in self._store.list(HOST.name)[0] if leading else ():
                lease = leases.get(lease_of(host.name))
                if lease and leading and lease.holder == leading.holder:
                    return Location("", host.name, str(host.status.get("address") or ""))
        return None

    def is_here(self, namespace: str, name: str) -> bool:
        """Return True if no other host has the sandbox. Raises ServiceUnavailable if the store fails."""
        location = self.of(SANDBOX.name, namespace, name)
        return location is None or location.host in (UNBOUND, self.host)

    def other_hosts(self) -> Sequence[OtherHost]:
        """Return the other hosts in order of their names. Raises ServiceUnavailable if the store fails."""
        with errors.translate_store_errors():
            other_hosts = [host for host in self._store.list(HOST.name)[0] if host.name != self.host]
            leases = {lease.name: lease for lease in self._store.leases()} if other_hosts else {}
        return [
            OtherHost(host.name, str(host.status.get("address") or ""), _away(leases.get(lease_of(host.name))))
            for host in other_hosts
        ]

    def is_away(self, host: str) -> bool:
        """Return True if the daemon of a host does not hold its lease. Raises ServiceUnavailable if the store fails."""
        with errors.translate_store_errors():
            return not self._is_held(host)

    def _is_held(self, host: str) -> bool:
        name = lease_of(host)
        return any(lease.name == name and lease.seconds_left > 0 for lease in self._store.leases())


def _away(lease: LeaseState | None) -> str:
    """Return the reason why the daemon of a host with this lease can't answer; empty if it may."""
    reachable = daemon_reachable(lease)
    if reachable.status == "True":
        return ""
    stopped = reachable.reason == STOPPED
    return "its daemon was stopped" if stopped else "its daemon, the host or its network is away; look at that host"
