"""A daemon killed at every step of every feature's life: what comes of it is what comes of a life without a crash."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.store_backends import Backend, make_backend
from tests.examples import examples
from tests.loop.harness import Crash, Moment
from tests.loop.lives import LIVES, CrashingHarness, Step

# Of the steps of a life: all in the profile deep, every third in `make test`, every seventh in plain pytest.
_STRIDE = 1 if examples(100) > 100 else 3 if os.environ.get("PADDOCK_TEST_DOCKER") else 7
# So many steps each daemon lives where they die one after the other: enough to get on by, fewer than a life has.
_APART = 11


def live(
    harness: CrashingHarness,
    steps: tuple[Step, ...],
    again: Callable[[], None] = lambda: None,
    *,
    begin: int = 0,
    at: Callable[[int], None] = lambda _number: None,
) -> int:
    """Every step, and what follows from it; after a crash by the next daemon, which is asked again.

    `again` may have that one crash, too. `at` is told which step begins. How often one crashed.
    """
    crashes = 0
    for number, step in enumerate((*steps, lambda harness: harness.settle(seconds=130))):
        if number < begin:
            continue
        at(number)
        todo = [step, lambda harness: harness.settle(seconds=0)]
        while todo:
            try:
                todo[0](harness)
                del todo[0]
            except Crash:
                crashes += 1
                assert crashes < 100, "no daemon gets on"
                harness.daemon()
                again()
                todo = [step, lambda harness: harness.settle(seconds=0)]
        harness.check()
    harness.check(swept=True)
    return crashes


@pytest.mark.timeout(600)
@pytest.mark.parametrize("life", LIVES)
def test_a_crash_after_any_step_changes_nothing_in_the_end(backend: Backend, life: str) -> None:
    """From all that is there after each step of a life, it goes on with the next daemon."""
    harness, steps = CrashingHarness(backend, backend.store()), LIVES[life]
    number, moments = 0, list[tuple[int, Moment]]()

    def begins(begun: int) -> None:
        nonlocal number
        number = begun

    def watch(after: bool) -> None:
        if after:
            moments.append((number, Moment(harness, backend.path())))

    harness.watch = watch
    live(harness, steps, at=begins)
    picture = harness.picture()
    harness.watch = lambda _after: None
    harness.empty()
    assert len(moments) > 10
    for at, (begin, moment) in enumerate(moments[::_STRIDE]):
        moment.take_up(harness)
        assert live(harness, steps, begin=begin) == 0
        assert harness.picture() == picture, f"crash after step {at * _STRIDE + 1} of {len(moments)}"
        harness.empty()
        moment.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("life", LIVES)
def test_crashes_before_steps_change_nothing_in_the_end(backend: Backend, life: str) -> None:
    """Lives in which each daemon crashes some steps after the one before it, begun one step later each time."""
    store = backend.store()
    harness = CrashingHarness(backend, store)
    live(harness, LIVES[life])
    picture, total = harness.picture(), harness.fuse.steps
    harness.empty()
    crashes = 0
    for crash_at in range(1, min(total, _APART) + 1, _STRIDE):
        harness = CrashingHarness(backend, store)

        def blow(at: int, harness: CrashingHarness = harness) -> None:
            harness.fuse.blow_at = at

        blow(crash_at)
        crashes += live(harness, LIVES[life], lambda: blow(_APART))
        assert harness.picture() == picture, f"crash at step {crash_at} of {total}"
        harness.empty()
    assert crashes >= total // _STRIDE, "the steps of the whole life were tried"


@pytest.mark.postgres
@pytest.mark.parametrize("life", LIVES)
def test_a_life_on_postgresql_is_that_on_sqlite(backend: Backend, life: str, tmp_path: Path) -> None:
    with make_backend("postgres", tmp_path) as second:
        pictures = []
        for entry in (backend, second):
            harness = CrashingHarness(entry, entry.store())
            live(harness, LIVES[life])
            pictures.append(harness.picture())
            harness.empty()
    assert pictures[0] == pictures[1]
