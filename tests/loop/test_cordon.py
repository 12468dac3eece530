"""A cordoned host: what is new waits, what runs is kept, and uncordoned it all goes on by itself."""

from controller.kinds.registry import discover
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import counts, filled, harness, pool

__all__ = ["harness"]


def cordon(harness: LoopHarness, *, schedulable: bool = False) -> None:
    kind = discover().by_name("Host")
    assert kind is not None
    harness.services.patch.patch(kind, "", "host", {"spec": {"schedulable": schedulable}})


def drain(harness: LoopHarness, *, drained: bool = True) -> None:
    kind = discover().by_name("Host")
    assert kind is not None
    harness.services.patch.patch(kind, "", "host", {"spec": {"schedulable": not drained, "drained": drained}})


def test_a_drained_host_loses_its_warm_sandboxes_and_nothing_else(harness: LoopHarness) -> None:
    filled(harness, 2)
    harness.apply("stays")
    harness.settle(seconds=30)
    drain(harness)
    harness.apply("new")
    harness.settle(seconds=30)
    assert counts(harness)[1:] == (0, 0)
    assert harness.condition("stays", "Ready") == "True Running"
    assert harness.condition("new", "Scheduled") == "False HostCordoned"
    [event] = [
        entry.message for entry in harness.store.events(kind="Sandbox", name="new") if entry.reason == "HostCordoned"
    ]
    assert event == "host host is being drained: nothing new is started until `paddock host uncordon host`"
    drain(harness, drained=False)
    harness.settle(seconds=60)
    assert counts(harness) == (2, 2, 0)
    assert harness.condition("new", "Ready") == "True Running"


def test_new_starts_wait_and_what_runs_is_kept(harness: LoopHarness) -> None:
    harness.apply("before")
    harness.apply("asleep")
    harness.settle()
    harness.apply("asleep", runState="Suspended")
    harness.settle(seconds=30)
    cordon(harness)
    harness.apply("new")
    harness.apply("asleep", runState="Running")
    harness.settle(seconds=5)
    for name in ("new", "asleep"):
        assert harness.condition(name, "Scheduled") == "False HostCordoned"
        assert harness.condition(name, "Ready").startswith("False")
    events = [
        event.message for event in harness.store.events(kind="Sandbox", name="new") if event.reason == "HostCordoned"
    ]
    assert events == ["host host is cordoned: nothing new is started until `paddock host uncordon host`"]
    harness.engine.kill(harness.container_name("before"))
    harness.settle(seconds=60)
    assert harness.condition("before", "Ready") == "True Running", "a restart is nothing new"
    assert harness.get("before").status["restartCount"] == 1  # type: ignore[union-attr]
    cordon(harness, schedulable=True)
    harness.settle(seconds=5)
    assert [harness.condition(entry, "Ready") for entry in ("new", "asleep")] == ["True Running"] * 2


def test_a_pool_gives_what_it_has_and_is_not_refilled(harness: LoopHarness) -> None:
    filled(harness, 2)
    cordon(harness)
    harness.refer("a", "t")
    harness.settle(seconds=30)
    assert harness.condition("a", "Ready") == "True Running", "its member runs on this host already"
    assert counts(harness)[1:] == (1, 1)
    [degraded] = [condition for condition in pool(harness).status["conditions"] if condition["type"] == "Ready"]
    assert (degraded["status"], degraded["reason"]) == ("False", "Filling")
    assert "host host is cordoned" in degraded["message"]
    cordon(harness, schedulable=True)
    harness.settle(seconds=30)
    assert counts(harness) == (2, 2, 1)
