"""Requests that proxies let through come into the audit log: once, in sums, all that the proxies' logs still hold."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.access.audit import AuditEntry
from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import egress_name
from controller.loop.tasks.egress_audit import EgressAudit
from controller.policy.network.egress import IMAGE
from controller.ports import StoreError
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    harness.engine.add_image(IMAGE)
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    harness.apply("web", template={"securityLevel": "development"}, resources=small)
    harness.settle()
    yield harness
    harness.close()


def auditor(house: LoopHarness, audit: Any = None) -> EgressAudit:
    return EgressAudit(
        snapshot=lambda: house.reconcile_pass.last,
        streams=house.engine,
        audit=audit or house.store.audit,
        clock=house.clock,
    )


def say(house: LoopHarness, *said: tuple[str, str, str]) -> None:
    """Lines of its proxy: (result, target, server)."""
    stored = house.get("web")
    assert stored is not None
    box = house.engine.box(egress_name(stored.uid))
    for result, target, server in said:
        house.clock.advance(1)
        at = house.clock.now()
        line = f"{at:.3f} 10.0.0.1 {result} GET {target} - {server} 10\n"
        box.output.append((at, Chunk("stdout", line.encode())))


def entries(house: LoopHarness) -> list[AuditEntry]:
    return [entry for entry in house.store.audit.entries() if entry.verb == "egress"]


UNRESOLVED = ("TCP_DENIED/503", "lost.example.org:80", "-")
ALLOWED, REFUSED = ("TCP_MISS/200", "git.example.org:80", "192.0.2.1"), ("TCP_DENIED/403", "other.example.org:80", "-")


def test_sums_by_host_once(house: LoopHarness) -> None:
    watch = auditor(house)
    watch.observe_now()
    assert entries(house) == []
    say(house, ALLOWED, ALLOWED, REFUSED)
    watch.observe_now()
    watch.observe_now()
    (entry,) = entries(house)
    assert (entry.kind, entry.namespace, entry.name) == ("Sandbox", "default", "web")
    assert entry.detail["allowed"] == {"git.example.org": 2}
    assert entry.detail["refused"] == {"other.example.org": 1}
    say(house, REFUSED)
    watch.observe_now()
    assert [single.detail.get("refused") for single in entries(house)] == [{"other.example.org": 1}] * 2
    assert house.store.audit.verify().problem == ""


def test_a_failure_of_dns_is_in_the_condition(house: LoopHarness) -> None:
    """Until the name has an address, or nobody asks for ten minutes."""
    watch = auditor(house)
    house.reconcile_pass._unresolved = watch.unresolved
    say(house, UNRESOLVED, REFUSED)
    watch.observe_now()
    house.settle()
    stored = house.get("web")
    assert stored is not None
    (condition,) = (entry for entry in stored.status["conditions"] if entry["type"] == "NetworkReady")
    assert (condition["status"], condition["reason"]) == ("True", "NamesUnresolved")
    assert "no address for lost.example.org when last asked: DNS failed, nothing was refused" in condition["message"]
    first = watch.unresolved()
    assert watch.unresolved()[stored.uid] is first[stored.uid], "a settled pass compares by identity"
    say(house, ("TCP_MISS/200", "lost.example.org:80", "192.0.2.1"))
    watch.observe_now()
    house.settle()
    assert house.condition("web", "NetworkReady") == "True Sealed"
    say(house, UNRESOLVED)
    watch.observe_now()
    house.clock.advance(601)
    assert watch.unresolved() == {}


def test_a_daemon_that_starts_goes_on_where_the_log_ends(house: LoopHarness) -> None:
    say(house, ALLOWED)
    auditor(house).observe_now()
    say(house, REFUSED)
    auditor(house).observe_now()
    assert [set(entry.detail) - {"until"} for entry in entries(house)] == [{"allowed"}, {"refused"}]


def test_what_a_proxy_said_last_is_read_before_it_goes(house: LoopHarness) -> None:
    watch = auditor(house)
    house.before = watch.before
    say(house, ALLOWED)
    watch.observe_now()
    say(house, REFUSED)
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    hosts = {"allowedHosts": ["git.example.org"]}
    house.apply("web", template={"securityLevel": "development"}, resources=small, network=hosts)
    house.settle()
    watch.observe_now()
    assert [set(entry.detail) - {"until"} for entry in entries(house)] == [{"allowed"}, {"refused"}]
    say(house, ALLOWED)
    stored = house.get("web")
    assert stored is not None
    house.engine.exit(egress_name(stored.uid), 1)
    house.settle()
    house.delete("web")
    house.settle()
    assert [set(entry.detail) - {"until"} for entry in entries(house)] == [{"allowed"}, {"refused"}, {"allowed"}]
    assert house.get("web") is None


def test_what_can_not_be_written_is_written_later(house: LoopHarness) -> None:
    class Full:
        full = True

        def entries(self, **asked: Any) -> Any:
            return house.store.audit.entries(**asked)

        def append(self, made: Any) -> None:
            if self.full:
                raise StoreError("disk full")
            house.store.audit.append(made)

    audit = Full()
    watch = auditor(house, audit)
    say(house, ALLOWED)
    watch.observe_now()
    assert entries(house) == []
    audit.full = False
    watch.observe_now()
    assert len(entries(house)) == 1


def test_a_sandbox_that_asks_for_very_many_names_does_not_fill_the_log(house: LoopHarness) -> None:
    say(house, *(("TCP_DENIED/403", f"{'x' * 300}{number}.example:80", "-") for number in range(100)))
    auditor(house).observe_now()
    (entry,) = entries(house)
    assert entry.detail["refused"] == {"x" * 253: 100}
    say(house, *(("TCP_DENIED/403", f"n{number}.example:80", "-") for number in range(100)))
    auditor(house).observe_now()
    refusal = entries(house)[-1].detail["refused"]
    assert (len(refusal), refusal["(others)"]) == (33, 68)
