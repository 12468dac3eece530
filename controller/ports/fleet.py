"""The fleet: this host among the hosts of its store. A single host answers everything trivially."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controller.kinds.host import NAME, other_engine
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import UNBOUND, host_of


class Fleet(ABC):
    """Questions of one daemon about itself and the others: who has an object, who decides, who writes."""

    host: str
    """Name of this host. One that keeps no sandboxes has its place's name, which no host can have."""

    default: str
    """Host of the objects that name none; "": they wait for one."""

    leads: Callable[[], bool]
    """True while this daemon decides for what belongs to no host: quotas' statuses, garbage, runs without a sandbox."""

    keeps_sandboxes: bool
    """False for a daemon that serves the API alone."""

    shares_store: bool
    """True if the daemons of other hosts write this store, too: what is worth its cost only beside others asks this."""

    @abstractmethod
    def host_of(self, obj: StoredObject) -> str:
        """Return the host that the object is bound to; "" if it waits for one."""

    @abstractmethod
    def is_own(self, obj: StoredObject) -> bool:
        """Return True if the object is bound to this host."""

    @abstractmethod
    def is_elsewhere(self, obj: StoredObject) -> bool:
        """Return True if the object is bound to another host."""

    @abstractmethod
    def is_unbound(self, obj: StoredObject) -> bool:
        """Return True if the object waits for a host."""

    @abstractmethod
    def judges(self, host: str | None) -> bool:
        """Return True if a spec that names this host is judged by what this host can do."""

    @abstractmethod
    def needs_lookup(self, host: str | None) -> bool:
        """Return True if only the store tells whether there is a host of that name."""

    @abstractmethod
    def binding(self, host: str) -> Mapping[str, str]:
        """Return the fields of a status that bind an object to a host, or show whose it is."""

    @abstractmethod
    def within(self, host: str) -> str | None:
        """Return the host to which a read of stored records is limited; None: all are of one host."""

    @abstractmethod
    def engine_refusal(self, hosts: Iterable[StoredObject], engine_id: str) -> str:
        """Return why this host may not act on its engine: it is another host's. "" if it may."""


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class SingleHost(Fleet):
    """The only host of its store: everything is its own."""

    host: str = NAME
    default: str = NAME
    leads: Callable[[], bool] = _always
    keeps_sandboxes: bool = True
    shares_store: bool = False

    def host_of(self, obj: StoredObject) -> str:
        return host_of(obj, self.default)

    def is_own(self, obj: StoredObject) -> bool:  # noqa: ARG002 - every object is
        return True

    def is_elsewhere(self, obj: StoredObject) -> bool:  # noqa: ARG002 - no object is
        return False

    def is_unbound(self, obj: StoredObject) -> bool:  # noqa: ARG002 - no object waits for one
        return False

    def judges(self, host: str | None) -> bool:  # noqa: ARG002 - it judges all
        return True

    def needs_lookup(self, host: str | None) -> bool:  # noqa: ARG002 - policy/host/binding.py knows its name
        return False

    def binding(self, host: str) -> Mapping[str, str]:  # noqa: ARG002 - nothing shows the only host
        return {}

    def within(self, host: str) -> str | None:  # noqa: ARG002 - no record is another host's
        return None

    def engine_refusal(self, hosts: Iterable[StoredObject], engine_id: str) -> str:  # noqa: ARG002 - nobody else has it
        return ""


@dataclass(frozen=True, slots=True)
class ManyHosts(Fleet):
    """One of several hosts."""

    host: str
    default: str = UNBOUND
    leads: Callable[[], bool] = _always
    keeps_sandboxes: bool = True
    shares_store: bool = True

    def host_of(self, obj: StoredObject) -> str:
        return host_of(obj, self.default)

    def is_own(self, obj: StoredObject) -> bool:
        return self.host_of(obj) == self.host

    def is_elsewhere(self, obj: StoredObject) -> bool:
        return self.host_of(obj) not in (UNBOUND, self.host)

    def is_unbound(self, obj: StoredObject) -> bool:
        return self.host_of(obj) == UNBOUND

    def judges(self, host: str | None) -> bool:
        return host == self.host

    def needs_lookup(self, host: str | None) -> bool:
        return bool(host) and host != self.host

    def binding(self, host: str) -> Mapping[str, str]:
        return {"host": host}

    def within(self, host: str) -> str | None:
        return host

    def engine_refusal(self, hosts: Iterable[StoredObject], engine_id: str) -> str:
        return other_engine(hosts, self.host, engine_id)


@dataclass(frozen=True, slots=True)
class Reached:
    """Addresses for other machines: HOST:PORT of this host's daemon, the URL of its metrics; "": not reached."""

    address: str = ""
    metrics_url: str = ""


SINGLE, NOT_REACHED = SingleHost(), Reached()
