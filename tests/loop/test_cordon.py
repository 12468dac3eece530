"""A cordoned host: what is new waits, what runs is kept, and uncordoned it all goes on by itself."""

from controller.kinds.registry import discover
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import counts, filled, house, pool

__all__ = ["house"]


def cordon(house: LoopHarness, *, schedulable: bool = False) -> None:
    kind = discover().by_name("Host")
    assert kind is not None
    house.services.patch.patch(kind, "", "host", {"spec": {"schedulable": schedulable}})


def drain(house: LoopHarness, *, drained: bool = True) -> None:
    kind = discover().by_name("Host")
    assert kind is not None
    house.services.patch.patch(kind, "", "host", {"spec": {"schedulable": not drained, "drained": drained}})


def test_a_drained_host_loses_its_warm_sandboxes_and_nothing_else(house: LoopHarness) -> None:
    filled(house, 2)
    house.apply("stays")
    house.settle(seconds=30)
    drain(house)
    house.apply("new")
    house.settle(seconds=30)
    assert counts(house)[1:] == (0, 0)
    assert house.condition("stays", "Ready") == "True Running"
    assert house.condition("new", "Scheduled") == "False HostCordoned"
    [event] = [
        entry.message for entry in house.store.events(kind="Sandbox", name="new") if entry.reason == "HostCordoned"
    ]
    assert event == "host host is being drained: nothing new is started until `paddock host uncordon host`"
    drain(house, drained=False)
    house.settle(seconds=60)
    assert counts(house) == (2, 2, 0)
    assert house.condition("new", "Ready") == "True Running"


def test_new_starts_wait_and_what_runs_is_kept(house: LoopHarness) -> None:
    house.apply("before")
    house.apply("asleep")
    house.settle()
    house.apply("asleep", runState="Suspended")
    house.settle(seconds=30)
    cordon(house)
    house.apply("new")
    house.apply("asleep", runState="Running")
    house.settle(seconds=5)
    for name in ("new", "asleep"):
        assert house.condition(name, "Scheduled") == "False HostCordoned"
        assert house.condition(name, "Ready").startswith("False")
    events = [
        event.message for event in house.store.events(kind="Sandbox", name="new") if event.reason == "HostCordoned"
    ]
    assert events == ["host host is cordoned: nothing new is started until `paddock host uncordon host`"]
    house.engine.kill(house.container_name("before"))
    house.settle(seconds=60)
    assert house.condition("before", "Ready") == "True Running", "a restart is nothing new"
    assert house.get("before").status["restartCount"] == 1  # type: ignore[union-attr]
    cordon(house, schedulable=True)
    house.settle(seconds=5)
    assert [house.condition(entry, "Ready") for entry in ("new", "asleep")] == ["True Running"] * 2


def test_a_pool_gives_what_it_has_and_is_not_refilled(house: LoopHarness) -> None:
    filled(house, 2)
    cordon(house)
    house.refer("a", "t")
    house.settle(seconds=30)
    assert house.condition("a", "Ready") == "True Running", "its member runs on this host already"
    assert counts(house)[1:] == (1, 1)
    [degraded] = [condition for condition in pool(house).status["conditions"] if condition["type"] == "Ready"]
    assert (degraded["status"], degraded["reason"]) == ("False", "Filling")
    assert "host host is cordoned" in degraded["message"]
    cordon(house, schedulable=True)
    house.settle(seconds=30)
    assert counts(house) == (2, 2, 1)
