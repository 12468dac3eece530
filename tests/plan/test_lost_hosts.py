"""Lost hosts: two checks in a row that find a daemon away."""

from controller.plan.fleet.lost_hosts import away, lost_hosts
from controller.ports.store import LeaseState


def test_expired_leases_of_hosts_are_away() -> None:
    leases = [LeaseState(name, "a daemon", 1, seconds) for name, seconds in (("host/one", 3.0), ("host/two", -1.0))]
    assert away([*leases, LeaseState("fleet", "a daemon", 1, -1.0)]) == {"two"}


def test_host_is_lost_after_two_checks() -> None:
    assert lost_hosts({"two"}, set(), "one") == set()
    assert lost_hosts({"two", "three"}, {"two"}, "one") == {"two"}
    assert lost_hosts(set(), {"two"}, "one") == set()


def test_own_host_is_never_lost() -> None:
    assert lost_hosts({"one"}, {"one"}, "one") == set()
