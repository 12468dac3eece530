"""Budgets of sources: never more than allowed in any minute, and the same after a restart."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.gateway.budgets import Budget, Budgets, BudgetUsed, Reservation
from controller.gateway.config import Limits
from controller.gateway.request import tokens_needed
from tests.examples import examples

_NOON = 1_800_000_000.0


@settings(max_examples=examples(100))
@given(st.lists(st.floats(0, 40), max_size=60), st.integers(1, 5))
def test_no_minute_has_more_requests_than_allowed(pauses: list[float], most: int) -> None:
    budget, now, occupied = Budget(), _NOON, []
    for pause in pauses:
        now += pause
        try:
            budget.take(Limits(requests_per_minute=most), now, Reservation("a", 0))
        except BudgetUsed as error:
            later = now + error.retry_after  # then there is room
            budget.take(Limits(requests_per_minute=most), later, Reservation("a", 0))
            now += error.retry_after
        occupied.append(now)
    for at in occupied:
        assert sum(at - 60 < number <= at for number in occupied) <= most


def test_tokens_are_of_a_day() -> None:
    clock = [_NOON]
    budgets, limits = Budgets(lambda: clock[0]), Limits(tokens_per_day=10)
    reservation = budgets.take("a", limits, 5)
    budgets.settle(reservation, 12)
    budgets.end(reservation)
    with pytest.raises(BudgetUsed) as usage:
        budgets.take("a", limits, 5)
    again = Budgets(lambda: clock[0])
    again.restore(budgets.usage())
    with pytest.raises(BudgetUsed):
        again.take("a", limits, 5)
    clock[0] += usage.value.retry_after
    again.take("a", limits, 5)


def test_a_clock_set_back_locks_nobody_out() -> None:
    budget = Budget()
    budget.take(Limits(requests_per_minute=1), _NOON, Reservation("a", 0))
    budget.take(Limits(requests_per_minute=1), _NOON - 3600, Reservation("a", 0))


def test_requests_at_a_time_are_counted_until_their_end() -> None:
    budgets, limits = Budgets(lambda: _NOON), Limits(concurrent=1)
    reservation = budgets.take("a", limits, 0)
    with pytest.raises(BudgetUsed):
        budgets.take("a", limits, 0)
    assert budgets.running() == 1
    budgets.settle(reservation, 0)
    assert budgets.running() == 1
    budgets.end(reservation)
    budgets.take("a", limits, 0)


def _needed(**request: object) -> int:
    return tokens_needed("/chat/completions", request, 400)


def test_tokens_needed_follow_the_bound_of_an_answer() -> None:
    assert _needed(max_tokens=50) == 150
    assert _needed(max_completion_tokens=50, n=3) == 250
    assert _needed() == _needed(max_tokens=True) == _needed(max_tokens="1") > 1000
    assert _needed(max_tokens=50.0, n=3.0) == 250
    assert _needed(max_output_tokens=50) == tokens_needed("/responses", {"max_tokens": 50}, 400) == _needed()
    assert tokens_needed("/responses", {"max_output_tokens": 50}, 400) == 150
    for prompt, count in (("one", 1), ([1, 2, 3], 1), (["one", "two"], 2), ([[1], [2], [3]], 3)):
        assert tokens_needed("/completions", {"max_tokens": 50, "prompt": prompt}, 400) == 100 + 50 * count
    assert tokens_needed("/embeddings", {}, 400) == 100
    assert tokens_needed("/messages/count_tokens", {}, 400) == 0


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(1, 60), st.booleans(), st.integers(0, 60)), max_size=60))
def test_a_budget_is_overshot_by_one_request_at_most(requests: list[tuple[int, bool, int]]) -> None:
    budgets, limits, running = Budgets(lambda: _NOON), Limits(tokens_per_day=100), []
    for bound, ends, at in requests:
        with contextlib.suppress(BudgetUsed):
            running.append(budgets.take("a", limits, bound))
        if ends and running:  # an answer is never longer than its bound
            reservation = running.pop(at % len(running))
            budgets.settle(reservation, reservation.estimate)
            budgets.end(reservation)
    for reservation in running:
        budgets.settle(reservation, reservation.estimate)
    assert budgets.usage().get("a", {"tokens": 0})["tokens"] < 100 + 60
