"""The canary in the loop: asked when something needs it, not before; all is forgotten when the guard was away."""

import threading
from collections.abc import Callable, Iterator

import pytest

from controller.kinds.meta import ObjectRef
from controller.kinds.observed.canary import CanaryTry
from controller.kinds.runtime.container import ContainerConfig
from controller.loop.tasks.canary import RETRY_SECONDS, CanaryWatch
from controller.policy.levels.levels import Policy
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness
from tests.small_sandboxes import apply_small

PERIOD = 300.0
HOST = ObjectRef("Host", "", "host", "host-uid")


class Bird:
    """A canary that finds what it is told."""

    def __init__(self) -> None:
        self.finds, self.tries, self.cleaned = CanaryTry(), 0, 0
        self.before: Callable[[], None] = lambda: None

    def observe_now(self, config: ContainerConfig, range_: str) -> CanaryTry:
        assert (config.capabilities, config.read_only_root, range_) == ((), True, Policy().network_range)
        self.tries += 1
        self.before()
        return self.finds

    def clean(self) -> None:
        self.cleaned += 1


class Watched:
    """A harness whose passes heed a canary."""

    def __init__(self, harness: LoopHarness) -> None:
        self.harness, self.bird = harness, Bird()
        range_ = Policy().network_range
        self.watch = CanaryWatch(
            self.bird, harness.store, harness.clock, lambda: None, HOST, range_=range_, period=PERIOD
        )
        harness.reconcile_pass._canary = self.watch

    def settle(self) -> None:
        """Turns and tries, until nothing is left of either."""
        for _ in range(6):
            self.harness.settle()
            self.watch.wait()

    def later(self, seconds: float) -> None:
        self.harness.clock.advance(seconds)
        self.watch.tick()
        self.settle()

    def apply(self, name: str = "web", level: str = "production") -> None:
        apply_small(self.harness, name, level)

    def events(self) -> list[str]:
        return [event.reason for event in self.harness.store.events(kind="Host")]


@pytest.fixture
def watched(backend: Backend) -> Iterator[Watched]:
    harness = LoopHarness(backend.store())
    watched = Watched(harness)
    yield watched
    watched.watch.stop()
    harness.close()


def test_a_host_without_networks_is_left_alone(watched: Watched) -> None:
    watched.apply(level="full-isolation")
    watched.settle()
    for _ in range(2):
        watched.later(10 * PERIOD)
    assert (watched.bird.tries, watched.bird.cleaned) == (0, 1)
    assert watched.harness.condition("web", "Ready") == "True Running"


def test_the_first_network_waits_for_a_try_and_the_next_does_not(watched: Watched) -> None:
    observed: list[int] = []
    watched.bird.before = lambda: observed.append(len(watched.harness.engine.calls))
    watched.apply()
    watched.settle()
    assert (watched.bird.tries, observed) == (1, [0])
    assert watched.harness.condition("web", "Ready") == "True Running"
    watched.apply("other")
    watched.settle()
    assert watched.harness.condition("other", "Ready") == "True Running"
    assert watched.bird.tries == 1


def test_it_is_tried_again_and_again_while_there_is_a_network(watched: Watched) -> None:
    watched.apply()
    watched.settle()
    watched.later(PERIOD / 2)
    assert watched.bird.tries == 1
    watched.later(PERIOD)
    assert watched.bird.tries == 2
    watched.harness.delete("web")
    watched.settle()
    assert watched.bird.cleaned == 0
    for _ in range(2):
        watched.later(2 * PERIOD)
    assert (watched.bird.tries, watched.bird.cleaned) == (2, 1)


def test_what_a_try_leaves_is_cleaned_up_also_where_nothing_needs_it_before_its_end(watched: Watched) -> None:
    watched.apply()
    watched.settle()
    over = threading.Event()

    def held_up() -> None:
        assert over.wait(30)

    watched.bird.before = held_up
    watched.harness.clock.advance(2 * PERIOD)
    watched.watch.tick()
    watched.harness.delete("web")
    watched.harness.settle()
    watched.watch.tick()
    over.set()
    watched.watch.wait()
    watched.watch.tick()
    watched.watch.wait()
    assert (watched.bird.tries, watched.bird.cleaned) == (2, 1)


def test_what_answers_holds_up_all_that_is_new_and_is_told(watched: Watched) -> None:
    watched.apply()
    watched.settle()
    watched.bird.finds = CanaryTry(("this host (10.0.0.1) from pdp-c", "this host (10.0.0.1) from pdp-c"))
    watched.later(PERIOD)
    assert watched.watch.now.broken.count("this host") == 1
    assert watched.harness.condition("web", "Ready") == "False NetworkUnguarded"
    assert watched.harness.condition("web", "NetworkReady") == "False NetworkUnguarded"
    watched.apply("late")
    watched.settle()
    assert watched.harness.condition("late", "Ready") == "False NetworkUnguarded"
    assert watched.events() == ["GuardBroken"]
    watched.bird.finds = CanaryTry()
    watched.later(RETRY_SECONDS)
    assert watched.harness.condition("late", "Ready") == "True Running"
    assert watched.harness.condition("web", "NetworkReady") == "True Public"
    assert watched.events() == ["GuardBroken", "GuardHolds"]


@pytest.mark.parametrize("why", ["it can't be tried", "the engine is away", "the guard is away"])
def test_what_was_broken_is_so_until_it_is_seen_to_hold(watched: Watched, why: str) -> None:
    watched.apply()
    watched.settle()
    harness, bird = watched.harness, watched.bird
    bird.finds = CanaryTry(("this host (10.0.0.1) from pdp-c",))
    watched.later(PERIOD)
    bird.finds = CanaryTry(trouble="the engine is busy")
    if why == "the engine is away":
        harness.engine.go_down("connection refused")
        harness.run_pass()
        harness.engine.come_up()
    elif why == "the guard is away":
        for message in ("the table is gone", ""):
            harness.engine.unguarded = message
            harness.engine.observe_now()
            harness.run_pass()
    watched.watch.wait()  # what began just now counts as before
    tries = bird.tries
    watched.later(RETRY_SECONDS)
    assert bird.tries > tries
    assert watched.watch.now.broken
    assert harness.condition("web", "NetworkReady") == "False NetworkUnguarded"
    assert watched.events() == ["GuardBroken"]
    bird.finds = CanaryTry()
    watched.later(RETRY_SECONDS)
    assert harness.condition("web", "NetworkReady") == "True Public"
    assert watched.events() == ["GuardBroken", "GuardHolds"]


def test_what_can_not_be_tried_holds_up_too_and_is_tried_again(watched: Watched) -> None:
    watched.bird.finds = CanaryTry(trouble="No such image: paddock/egress:1")
    watched.apply()
    watched.settle()
    assert watched.watch.now.state == "Untried"
    assert "images/build.sh egress" in watched.watch.now.message
    assert watched.harness.condition("web", "Ready") == "False NetworkUnguarded"
    assert watched.watch.now.broken == ""
    watched.bird.finds = CanaryTry()
    watched.later(RETRY_SECONDS)
    assert watched.harness.condition("web", "Ready") == "True Running"
    assert watched.events() == []


def test_an_engine_or_a_guard_that_was_away_is_tried_anew(watched: Watched) -> None:
    watched.apply()
    watched.settle()
    harness = watched.harness
    harness.engine.go_down("connection refused")
    harness.run_pass()
    harness.engine.come_up()
    watched.settle()
    assert watched.bird.tries == 2
    harness.engine.unguarded = "the table is gone"
    harness.engine.observe_now()
    watched.settle()
    assert (watched.bird.tries, watched.watch.now.state) == (2, "Pending")
    harness.engine.unguarded = ""
    harness.engine.observe_now()
    watched.settle()
    assert (watched.bird.tries, watched.watch.now.state) == (3, "Holds")


def test_what_was_tried_of_an_engine_that_went_away_meanwhile_counts_for_nothing(watched: Watched) -> None:
    harness = watched.harness

    def away() -> None:
        watched.bird.before = lambda: None
        harness.engine.go_down("connection refused")
        watched.watch.see(harness.engine.observe())
        harness.engine.come_up()

    watched.bird.before = away
    watched.apply()
    watched.settle()
    assert (watched.bird.tries, watched.watch.now.state) == (2, "Holds")


def test_a_canary_that_breaks_is_no_canary_that_lives(watched: Watched) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    watched.bird.before = broken
    watched.apply()
    watched.settle()
    assert watched.watch.now.state == "Untried"
    assert "a bug" in watched.watch.now.message
