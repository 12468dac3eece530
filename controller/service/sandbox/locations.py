"""Locations of sandboxes: the host that runs one, and the address of that host's daemon."""

from dataclasses import dataclass

from controller.kinds.host import KIND as HOST
from controller.kinds.meta import stored_condition
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.ports import Store
from controller.service import errors


@dataclass(frozen=True, slots=True)
class Location:
    """The host of one object of this uid; empty: none yet, for the reason `waits`, if it is known.

    `address` is that of another host's daemon, if known.
    """

    uid: str
    host: str
    address: str = ""
    waits: str = ""


class Locations:
    """Answers from the store, for the daemon of `host`; `default` is the host of objects that name none."""

    def __init__(self, store: Store, host: str, default: str) -> None:
        self.host = host
        self._store, self._default = store, default

    def of(self, kind: str, namespace: str, name: str) -> Location | None:
        """Return the location of an object; None: there is none. Raises ServiceUnavailable if the store fails."""
        with errors.translate_store_errors():
            obj = self._store.get(kind, namespace, name)
            if obj is None:
                return None
            host = host_of(obj, self._default)
            if host == UNBOUND:
                return Location(obj.uid, host, waits=stored_condition(obj, "Scheduled").get("message", ""))
            return Location(obj.uid, host, self._address(host) if host != self.host else "")

    def _address(self, host: str) -> str:
        found = self._store.get(HOST.name, "", host)
        return str(found.status.get("address") or "") if found else ""
