"""Watch over what is bound to hosts that there are not: the leader says so in its status, and ends its deletion."""

from collections.abc import Iterable

import structlog

from controller.kinds.host import KIND as HOST
from controller.kinds.host import host_of_lease
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import BOUND_KINDS, UNBOUND
from controller.plan.fleet.unknown_hosts import of_unknown_hosts
from controller.ports import ChangesGone, Clock, Store, StoreError
from controller.ports.fleet import Fleet

UNKNOWN_SECONDS = 3.0
_BATCH = 250  # changes read at a time
_log = structlog.get_logger("paddock.fleet")


class UnknownHosts:
    """`observe_now` is called every few seconds, and does nothing unless this daemon leads.

    It keeps the objects of unknown hosts, and reads only what changed. All are read again when a host is gone.
    """

    def __init__(self, store: Store, place: Fleet, clock: Clock) -> None:
        self._store, self._place, self._clock = store, place, clock
        self._revision = 0
        self._known: frozenset[str] = frozenset()
        self._found: dict[str, StoredObject] = {}

    def observe_now(self) -> None:
        """Write what is due. After a store failure it is written next time."""
        if not self._place.leads():
            self._known = frozenset()  # somebody else may lead for long
            return
        try:
            known_hosts = self._hosts()
            if self._known - known_hosts or not self._known:
                self._relist(known_hosts)
            else:
                self._follow(known_hosts)
            self._known = known_hosts
            if self._found:
                writes = of_unknown_hosts(self._found.values(), self._recorded_uids(), known_hosts, self._clock.now())
                if writes:
                    self._store.record(writes)
        except StoreError as error:
            _log.warning("objects of unknown hosts not recorded; retrying", reason=str(error))

    def _hosts(self) -> frozenset[str]:
        """Return the hosts that are stored, and those whose daemon holds a lease: it may have just started.

        A lease outlives its host: one that has expired names none.
        """
        leased_hosts = {host_of_lease(lease.name) for lease in self._store.leases() if lease.seconds_left > 0}
        return frozenset({host.name for host in self._store.list(HOST.name)[0]} | leased_hosts | {self._place.host}) - {
            ""
        }

    def _recorded_uids(self) -> set[str]:
        """Return the uids of objects that may have containers there: those are recorded before they are made."""
        hosts = {self._place.host_of(stored) for stored in self._found.values()}
        instances = [instance for host in sorted(hosts) for instance in self._store.instances(host=host)]
        return {uid for instance in instances for uid in (instance.uid, instance.parent_uid)}

    def _relist(self, known_hosts: frozenset[str]) -> None:
        revision, self._found = self._store.revision(), {}  # the revision first: later changes are read again
        for kind in BOUND_KINDS:
            self._take_in(self._store.list(kind, lean=kind == "Sandbox")[0], known_hosts)
        self._revision = revision

    def _follow(self, known_hosts: frozenset[str]) -> None:
        self._found = {uid: stored for uid, stored in self._found.items() if self._is_stray(stored, known_hosts)}
        try:
            while changes := self._store.changes(self._revision, limit=_BATCH):
                for change in changes:
                    self._found.pop(change.obj.uid, None)
                    if change.type != "DELETED" and change.obj.kind in BOUND_KINDS:
                        self._take_in((change.obj,), known_hosts)
                self._revision = changes[-1].revision
        except ChangesGone:
            self._relist(known_hosts)

    def _take_in(self, objects: Iterable[StoredObject], known_hosts: frozenset[str]) -> None:
        self._found |= {stored.uid: stored for stored in objects if self._is_stray(stored, known_hosts)}

    def _is_stray(self, obj: StoredObject, known_hosts: frozenset[str]) -> bool:
        return self._place.host_of(obj) not in {UNBOUND, *known_hosts}
