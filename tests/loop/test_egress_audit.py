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
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness
from tests.small_sandboxes import apply_small


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    harness.engine.add_image(IMAGE)
    apply_small(harness, "web", "development")
    harness.settle()
    yield harness
    harness.close()


def auditor(harness: LoopHarness, audit: Any = None) -> EgressAudit:
    return EgressAudit(
        snapshot=lambda: harness.reconcile_pass.last,
        streams=harness.engine,
        audit=audit or harness.store.audit,
        clock=harness.clock,
    )


def say(harness: LoopHarness, *said: tuple[str, str, str]) -> None:
    """Lines of its proxy: (result, target, server)."""
    stored = harness.get("web")
    assert stored is not None
    sandbox = harness.engine.container(egress_name(stored.uid))
    for result, target, server in said:
        harness.clock.advance(1)
        at = harness.clock.now()
        line = f"{at:.3f} 10.0.0.1 {result} GET {target} - {server} 10\n"
        sandbox.output.append((at, Chunk("stdout", line.encode())))


def entries(harness: LoopHarness) -> list[AuditEntry]:
    return [entry for entry in harness.store.audit.entries() if entry.verb == "egress"]


UNRESOLVED = ("TCP_DENIED/503", "lost.example.org:80", "-")
ALLOWED, REFUSED = ("TCP_MISS/200", "git.example.org:80", "192.0.2.1"), ("TCP_DENIED/403", "other.example.org:80", "-")


def test_sums_by_host_once(harness: LoopHarness) -> None:
    watch = auditor(harness)
    watch.observe_now()
    assert entries(harness) == []
    say(harness, ALLOWED, ALLOWED, REFUSED)
    watch.observe_now()
    watch.observe_now()
    (entry,) = entries(harness)
    assert (entry.kind, entry.namespace, entry.name) == ("Sandbox", "default", "web")
    assert entry.detail["allowed"] == {"git.example.org": 2}
    assert entry.detail["refused"] == {"other.example.org": 1}
    say(harness, REFUSED)
    watch.observe_now()
    assert [single.detail.get("refused") for single in entries(harness)] == [{"other.example.org": 1}] * 2
    assert harness.store.audit.verify().problem == ""


def test_a_failure_of_dns_is_in_the_condition(harness: LoopHarness) -> None:
    """Until the name has an address, or nobody asks for ten minutes."""
    watch = auditor(harness)
    harness.reconcile_pass._unresolved = watch.unresolved
    say(harness, UNRESOLVED, REFUSED)
    watch.observe_now()
    harness.settle()
    stored = harness.get("web")
    assert stored is not None
    (condition,) = (entry for entry in stored.status["conditions"] if entry["type"] == "NetworkReady")
    assert (condition["status"], condition["reason"]) == ("True", "NamesUnresolved")
    assert "no address for lost.example.org when last asked: DNS failed, nothing was refused" in condition["message"]
    first = watch.unresolved()
    assert watch.unresolved()[stored.uid] is first[stored.uid], "a settled pass compares by identity"
    say(harness, ("TCP_MISS/200", "lost.example.org:80", "192.0.2.1"))
    watch.observe_now()
    harness.settle()
    assert harness.condition("web", "NetworkReady") == "True Sealed"
    say(harness, UNRESOLVED)
    watch.observe_now()
    harness.clock.advance(601)
    assert watch.unresolved() == {}


def test_a_daemon_that_starts_goes_on_where_the_log_ends(harness: LoopHarness) -> None:
    say(harness, ALLOWED)
    auditor(harness).observe_now()
    say(harness, REFUSED)
    auditor(harness).observe_now()
    assert [set(entry.detail) - {"until"} for entry in entries(harness)] == [{"allowed"}, {"refused"}]


def test_what_a_proxy_said_last_is_read_before_it_goes(harness: LoopHarness) -> None:
    watch = auditor(harness)
    harness.before = watch.before
    say(harness, ALLOWED)
    watch.observe_now()
    say(harness, REFUSED)
    apply_small(harness, "web", "development", network={"allowedHosts": ["git.example.org"]})
    harness.settle()
    watch.observe_now()
    assert [set(entry.detail) - {"until"} for entry in entries(harness)] == [{"allowed"}, {"refused"}]
    say(harness, ALLOWED)
    stored = harness.get("web")
    assert stored is not None
    harness.engine.exit(egress_name(stored.uid), 1)
    harness.settle()
    harness.delete("web")
    harness.settle()
    assert [set(entry.detail) - {"until"} for entry in entries(harness)] == [{"allowed"}, {"refused"}, {"allowed"}]
    assert harness.get("web") is None


def test_what_can_not_be_written_is_written_later(harness: LoopHarness) -> None:
    class Full:
        full = True

        def entries(self, **asked: Any) -> Any:
            return harness.store.audit.entries(**asked)

        def append(self, made: Any) -> None:
            if self.full:
                raise StoreError("disk full")
            harness.store.audit.append(made)

    audit = Full()
    watch = auditor(harness, audit)
    say(harness, ALLOWED)
    watch.observe_now()
    assert entries(harness) == []
    audit.full = False
    watch.observe_now()
    assert len(entries(harness)) == 1


def test_a_sandbox_that_asks_for_very_many_names_does_not_fill_the_log(harness: LoopHarness) -> None:
    say(harness, *(("TCP_DENIED/403", f"{'x' * 300}{number}.example:80", "-") for number in range(100)))
    auditor(harness).observe_now()
    (entry,) = entries(harness)
    assert entry.detail["refused"] == {"x" * 253: 100}
    say(harness, *(("TCP_DENIED/403", f"n{number}.example:80", "-") for number in range(100)))
    auditor(harness).observe_now()
    refusal = entries(harness)[-1].detail["refused"]
    assert (len(refusal), refusal["(others)"]) == (33, 68)
