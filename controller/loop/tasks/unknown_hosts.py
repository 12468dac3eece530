"""Watch over what is bound to hosts that there are not: the leader says so in its status, and ends its deletion."""

from collections.abc import Iterable

import structlog

from controller.kinds.host import KIND as HOST
from controller.kinds.host import host_of_lease
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import BOUND_KINDS, UNBOUND, host_of
from controller.plan.capacity.unknown_hosts import of_unknown_hosts
from controller.ports import ChangesGone, Clock, Store, StoreError
from controller.ports.place import Place

UNKNOWN_SECONDS = 3.0
_BATCH = 250  # changes read at a time
_log = structlog.get_logger("paddock.fleet")


class UnknownHosts:
    """`observe_now` is called every few seconds, and does nothing unless this daemon leads.

    It keeps the objects of unknown hosts, and reads only what changed. All are read again when a host is gone.
    """

    def __init__(self, store: Store, place: Place, clock: Clock) -> None:
        self._store, self._place, self._clock = store, place, clock
        self._revision = 0
        self._known: frozenset[str] = frozenset()
        self._found: dict[str, StoredObject] = {}

    def observe_now(self) -> None:
        """Write what is due. After a store failure it is written next time."""
        if self._place.alone or not self._place.leads():
            self._known = frozenset()  # somebody else may lead for long
            return
        try:
            known = self._hosts()
            if self._known - known or not self._known:
                self._relist(known)
            else:
                self._follow(known)
            self._known = known
            if self._found:
                writes = of_unknown_hosts(self._found.values(), self._recorded(), known, self._clock.now())
                if writes:
                    self._store.record(writes)
        except StoreError as error:
            _log.warning("objects of unknown hosts not recorded; retrying", reason=str(error))

    def _hosts(self) -> frozenset[str]:
        """Return the hosts that are stored, and those whose daemon holds a lease: it may have just started.

        A lease outlives its host: one that has expired names none.
        """
        held = {host_of_lease(each.name) for each in self._store.leases() if each.seconds_left > 0}
        return frozenset({each.name for each in self._store.list(HOST.name)[0]} | held | {self._place.host}) - {""}

    def _recorded(self) -> set[str]:
        """Return the uids of objects that may have containers there: those are recorded before they are made."""
        hosts = {host_of(each, self._place.default) for each in self._found.values()}
        found = [each for host in sorted(hosts) for each in self._store.instances(host=host)]
        return {uid for each in found for uid in (each.uid, each.parent_uid)}

    def _relist(self, known: frozenset[str]) -> None:
        revision, self._found = self._store.revision(), {}  # the revision first: later changes are read again
        for kind in BOUND_KINDS:
            self._take_in(self._store.list(kind, lean=kind == "Sandbox")[0], known)
        self._revision = revision

    def _follow(self, known: frozenset[str]) -> None:
        self._found = {uid: each for uid, each in self._found.items() if self._is_stray(each, known)}
        try:
            while changes := self._store.changes(self._revision, limit=_BATCH):
                for each in changes:
                    self._found.pop(each.obj.uid, None)
                    if each.type != "DELETED" and each.obj.kind in BOUND_KINDS:
                        self._take_in((each.obj,), known)
                self._revision = changes[-1].revision
        except ChangesGone:
            self._relist(known)

    def _take_in(self, objects: Iterable[StoredObject], known: frozenset[str]) -> None:
        self._found |= {each.uid: each for each in objects if self._is_stray(each, known)}

    def _is_stray(self, obj: StoredObject, known: frozenset[str]) -> bool:
        return host_of(obj, self._place.default) not in {UNBOUND, *known}
