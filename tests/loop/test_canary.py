"""The canary in the loop: asked when something needs it, not before; all is forgotten when the guard was away."""

import threading
from collections.abc import Callable, Iterator

import pytest

from controller.kinds.meta import ObjectRef
from controller.kinds.observed.canary import CanaryTry
from controller.kinds.runtime.container import ContainerConfig
from controller.loop.tasks.canary import RETRY_SECONDS, CanaryWatch
from controller.policy.levels.levels import Policy
from tests.contract.store_worlds import World
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
def world_of(world: World) -> Iterator[Watched]:
    harness = LoopHarness(world.store())
    watched = Watched(harness)
    yield watched
    watched.watch.stop()
    harness.close()


def test_a_host_without_networks_is_left_alone(world_of: Watched) -> None:
    world_of.apply(level="full-isolation")
    world_of.settle()
    for _ in range(2):
        world_of.later(10 * PERIOD)
    assert (world_of.bird.tries, world_of.bird.cleaned) == (0, 1)
    assert world_of.harness.condition("web", "Ready") == "True Running"


def test_the_first_network_waits_for_a_try_and_the_next_does_not(world_of: Watched) -> None:
    observed: list[int] = []
    world_of.bird.before = lambda: observed.append(len(world_of.harness.engine.calls))
    world_of.apply()
    world_of.settle()
    assert (world_of.bird.tries, observed) == (1, [0])
    assert world_of.harness.condition("web", "Ready") == "True Running"
    world_of.apply("other")
    world_of.settle()
    assert world_of.harness.condition("other", "Ready") == "True Running"
    assert world_of.bird.tries == 1


def test_it_is_tried_again_and_again_while_there_is_a_network(world_of: Watched) -> None:
    world_of.apply()
    world_of.settle()
    world_of.later(PERIOD / 2)
    assert world_of.bird.tries == 1
    world_of.later(PERIOD)
    assert world_of.bird.tries == 2
    world_of.harness.delete("web")
    world_of.settle()
    assert world_of.bird.cleaned == 0
    for _ in range(2):
        world_of.later(2 * PERIOD)
    assert (world_of.bird.tries, world_of.bird.cleaned) == (2, 1)


def test_what_a_try_leaves_is_cleaned_up_also_where_nothing_needs_it_before_its_end(world_of: Watched) -> None:
    world_of.apply()
    world_of.settle()
    over = threading.Event()

    def held_up() -> None:
        assert over.wait(30)

    world_of.bird.before = held_up
    world_of.harness.clock.advance(2 * PERIOD)
    world_of.watch.tick()
    world_of.harness.delete("web")
    world_of.harness.settle()
    world_of.watch.tick()
    over.set()
    world_of.watch.wait()
    world_of.watch.tick()
    world_of.watch.wait()
    assert (world_of.bird.tries, world_of.bird.cleaned) == (2, 1)


def test_what_answers_holds_up_all_that_is_new_and_is_told(world_of: Watched) -> None:
    world_of.apply()
    world_of.settle()
    world_of.bird.finds = CanaryTry(("this host (10.0.0.1) from pdp-c", "this host (10.0.0.1) from pdp-c"))
    world_of.later(PERIOD)
    assert world_of.watch.now.broken.count("this host") == 1
    assert world_of.harness.condition("web", "Ready") == "False NetworkUnguarded"
    assert world_of.harness.condition("web", "NetworkReady") == "False NetworkUnguarded"
    world_of.apply("late")
    world_of.settle()
    assert world_of.harness.condition("late", "Ready") == "False NetworkUnguarded"
    assert world_of.events() == ["GuardBroken"]
    world_of.bird.finds = CanaryTry()
    world_of.later(RETRY_SECONDS)
    assert world_of.harness.condition("late", "Ready") == "True Running"
    assert world_of.harness.condition("web", "NetworkReady") == "True Public"
    assert world_of.events() == ["GuardBroken", "GuardHolds"]


@pytest.mark.parametrize("why", ["it can't be tried", "the engine is away", "the guard is away"])
def test_what_was_broken_is_so_until_it_is_seen_to_hold(world_of: Watched, why: str) -> None:
    world_of.apply()
    world_of.settle()
    harness, bird = world_of.harness, world_of.bird
    bird.finds = CanaryTry(("this host (10.0.0.1) from pdp-c",))
    world_of.later(PERIOD)
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
    world_of.watch.wait()  # what began just now counts as before
    tries = bird.tries
    world_of.later(RETRY_SECONDS)
    assert bird.tries > tries
    assert world_of.watch.now.broken
    assert harness.condition("web", "NetworkReady") == "False NetworkUnguarded"
    assert world_of.events() == ["GuardBroken"]
    bird.finds = CanaryTry()
    world_of.later(RETRY_SECONDS)
    assert harness.condition("web", "NetworkReady") == "True Public"
    assert world_of.events() == ["GuardBroken", "GuardHolds"]


def test_what_can_not_be_tried_holds_up_too_and_is_tried_again(world_of: Watched) -> None:
    world_of.bird.finds = CanaryTry(trouble="No such image: paddock/egress:1")
    world_of.apply()
    world_of.settle()
    assert world_of.watch.now.state == "Untried"
    assert "images/build.sh egress" in world_of.watch.now.message
    assert world_of.harness.condition("web", "Ready") == "False NetworkUnguarded"
    assert world_of.watch.now.broken == ""
    world_of.bird.finds = CanaryTry()
    world_of.later(RETRY_SECONDS)
    assert world_of.harness.condition("web", "Ready") == "True Running"
    assert world_of.events() == []


def test_an_engine_or_a_guard_that_was_away_is_tried_anew(world_of: Watched) -> None:
    world_of.apply()
    world_of.settle()
    harness = world_of.harness
    harness.engine.go_down("connection refused")
    harness.run_pass()
    harness.engine.come_up()
    world_of.settle()
    assert world_of.bird.tries == 2
    harness.engine.unguarded = "the table is gone"
    harness.engine.observe_now()
    world_of.settle()
    assert (world_of.bird.tries, world_of.watch.now.state) == (2, "Pending")
    harness.engine.unguarded = ""
    harness.engine.observe_now()
    world_of.settle()
    assert (world_of.bird.tries, world_of.watch.now.state) == (3, "Holds")


def test_what_was_tried_of_an_engine_that_went_away_meanwhile_counts_for_nothing(world_of: Watched) -> None:
    harness = world_of.harness

    def away() -> None:
        world_of.bird.before = lambda: None
        harness.engine.go_down("connection refused")
        world_of.watch.see(harness.engine.observe())
        harness.engine.come_up()

    world_of.bird.before = away
    world_of.apply()
    world_of.settle()
    assert (world_of.bird.tries, world_of.watch.now.state) == (2, "Holds")


def test_a_canary_that_breaks_is_no_canary_that_lives(world_of: Watched) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    world_of.bird.before = broken
    world_of.apply()
    world_of.settle()
    assert world_of.watch.now.state == "Untried"
    assert "a bug" in world_of.watch.now.message
