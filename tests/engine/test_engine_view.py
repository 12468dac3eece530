"""View: later tickets win over earlier ones, removals win always."""

import pytest

from controller.engine.docker.view import View, ViewEntry, unknown
from controller.kinds.observed.observed import Container, HostFacts, State
from controller.kinds.runtime.container import Limits
from tests.conftest import HandClock

LIMITS = Limits(500, 32 << 20, 32)


class Wakes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
def view(clock: HandClock, wakes: Wakes) -> View:
    created = View(clock)
    created.on_change(wakes)
    return created


def seen(ticket: int, id_: str = "a", uid: str = "u1", state: State = State.RUNNING) -> ViewEntry:
    return ViewEntry(Container(id=id_, name=f"pdk-{id_}", uid=uid, state=state, limits=LIMITS), LIMITS, ticket)


def state(view: View, uid: str = "u1") -> list[str]:
    return [str(container.state) for container in view.now.containers.get(uid, ())]


def test_before_the_first_look_it_is_blind(view: View) -> None:
    assert view.now.blind == "not observed yet"
    view.settle(view.ticket(), (), frozenset())
    assert view.now.blind == ""


def test_an_action_wins_over_an_older_list(view: View) -> None:
    start = view.ticket()
    view.put(seen(view.ticket(), state=State.EXITED))
    view.settle(start, [seen(start)], frozenset("a"))
    assert state(view) == ["exited"]


def test_newer_containers_survive_an_older_list(view: View) -> None:
    start = view.ticket()
    view.put(seen(view.ticket()))
    view.settle(start, (), frozenset())
    assert state(view) == ["running"]


def test_unlisted_containers_are_gone(view: View) -> None:
    view.put(seen(view.ticket()))
    view.settle(view.ticket(), (), frozenset())
    assert view.now.containers == {}
    assert view.is_gone("a")


def test_a_removal_beats_every_list_and_inspect(view: View) -> None:
    start = view.ticket()
    view.forget("a")
    view.settle(start, [seen(start)], frozenset("a"))
    view.put(seen(view.ticket()))
    assert view.now.containers == {}


def test_a_404_removes_only_observed_containers(view: View) -> None:
    view.not_found("a", view.ticket())
    assert not view.is_gone("a"), "it is listed while it is being created"
    ticket = view.ticket()
    view.put(seen(view.ticket()))
    view.not_found("a", ticket)
    assert state(view) == ["running"], "asked before it was made"
    view.not_found("a", view.ticket())
    assert view.now.containers == {}


def test_the_same_again_changes_nothing_but_the_time(view: View, wakes: Wakes, clock: HandClock) -> None:
    view.settle(view.ticket(), [seen(1)], frozenset("a"))
    revision, woken = view.now.revision, wakes.count
    clock.advance(10)
    view.settle(view.ticket(), [seen(view.ticket())], frozenset("a"))
    assert (view.now.revision, wakes.count) == (revision, woken)
    assert view.now.at == clock.now()


def test_each_change_is_one_revision_and_one_wake(view: View, wakes: Wakes) -> None:
    view.settle(view.ticket(), [seen(1, "a"), seen(1, "b"), seen(1, "c", "u2")], frozenset("abc"))
    assert (view.now.revision, wakes.count) == (1, 1)
    view.put(seen(view.ticket(), state=State.PAUSED))
    view.facts(HostFacts(cpus=2))
    assert (view.now.revision, wakes.count) == (3, 3)


def test_blind_keeps_what_was_seen_last(view: View, clock: HandClock) -> None:
    view.settle(view.ticket(), [seen(1)], frozenset("a"))
    at = view.now.at
    clock.advance(10)
    view.blind("connection refused")
    assert (view.now.blind, state(view), view.now.at) == ("connection refused", ["running"], at)


def test_doubt_makes_it_unknown_until_it_is_read(view: View) -> None:
    view.put(seen(view.ticket()))
    view.doubt("a")
    assert state(view) == ["unknown"]
    view.put(seen(view.ticket()))
    assert state(view) == ["running"]
    view.doubt("never heard of")
    assert unknown(seen(1), 2).container.state is State.UNKNOWN


def test_an_observation_is_never_changed_afterwards(view: View) -> None:
    view.settle(view.ticket(), [seen(1)], frozenset("a"))
    before = view.now
    view.put(seen(view.ticket(), "b"))
    view.forget("a")
    assert [container.id for container in before.containers["u1"]] == ["a"]
    with pytest.raises(TypeError):
        before.containers["u1"] = ()  # type: ignore[index]


def test_grouped_by_uid_oldest_first(view: View) -> None:
    young = Container(id="y", name="y", uid="u1", state=State.RUNNING, created_at=2.0)
    old = Container(id="z", name="z", uid="u1", state=State.EXITED, created_at=1.0)
    for container in (young, old):
        view.put(ViewEntry(container, LIMITS, view.ticket()))
    assert [entry.id for entry in view.now.containers["u1"]] == ["z", "y"]


def test_no_inspect_of_before_a_use_hides_it(clock: HandClock, wakes: Wakes) -> None:
    used_ids: set[str] = set()
    view = View(clock, used_ids.__contains__)
    view.on_change(wakes)
    view.put(seen(view.ticket()))
    slow = view.ticket()
    used_ids.add("a")
    view.used("a")
    view.used("b")
    assert ([container.is_used for container in view.now.containers["u1"]], wakes.count) == ([True], 2)
    view.put(seen(slow))
    assert [container.is_used for container in view.now.containers["u1"]] == [True]
