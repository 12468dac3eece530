"""Hosts that a new object may name: those that are stored, away ones too, and those whose daemon has just started."""

from collections.abc import Callable, Iterator, Sequence

from controller.kinds.host import KIND as HOST
from controller.kinds.host import host_of_lease
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import BOUND_KINDS
from controller.policy.host.binding import unknown
from controller.ports import LeaseState, Transaction
from controller.ports.fleet import Fleet


class KnownHosts:
    """The hosts as one transaction sees them. `leases` is asked only for a name that no stored host has."""

    def __init__(self, transaction: Transaction, leases: Callable[[], Sequence[LeaseState]], place: Fleet) -> None:
        self._transaction, self._leases, self._place = transaction, leases, place

    def refusals(self, current: StoredObject | None, obj: StoredObject) -> Iterator[tuple[str, str]]:
        """Yield (field, message) if a spec begins to name a host that there is not; an unchanged one may stay."""
        host_name = obj.spec.get("host")
        if obj.kind in BOUND_KINDS and (current is None or current.spec.get("host") != host_name):
            yield from self.host_refusals(host_name)

    def host_refusals(self, host_name: str | None) -> Iterator[tuple[str, str]]:
        """Yield (field, message) if that is no host; None: a host is not asked for."""
        if host_name is None or not self._place.needs_lookup(host_name):
            return
        if self._transaction.get(HOST.name, "", host_name) is not None:
            return
        yield from ((refusal.field, refusal.message) for refusal in unknown(host_name, self._host_names()))

    def _host_names(self) -> set[str]:
        stored = {host.name for host in self._transaction.list(HOST.name, "")}
        this_host = {self._place.host} if self._place.keeps_sandboxes else set()
        return (
            stored
            | this_host
            | {host_of_lease(lease.name) for lease in self._leases() if lease.seconds_left > 0} - {""}
        )
