"""Budgets of sources: never more than allowed in any minute, and the same after a restart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.gateway.budgets import Budget, Budgets, BudgetUsed
from controller.gateway.config import Limits
from tests.examples import examples

_NOON = 1_800_000_000.0


@settings(max_examples=examples(100))
@given(st.lists(st.floats(0, 40), max_size=60), st.integers(1, 5))
def test_no_minute_has_more_requests_than_allowed(pauses: list[float], most: int) -> None:
    budget, now, taken = Budget(), _NOON, []
    for pause in pauses:
        now += pause
        try:
            budget.take(Limits(requests_per_minute=most), now)
        except BudgetUsed as error:
            budget.take(Limits(requests_per_minute=most), now + error.retry_after)  # then there is room
            now += error.retry_after
        taken.append(now)
        budget.end(0, now)
    for at in taken:
        assert sum(at - 60 < each <= at for each in taken) <= most


def test_tokens_are_of_a_day() -> None:
    clock = [_NOON]
    budgets, limits = Budgets(lambda: clock[0]), Limits(tokens_per_day=10)
    budgets.take("a", limits)
    budgets.end("a", 12)
    with pytest.raises(BudgetUsed) as used:
        budgets.take("a", limits)
    again = Budgets(lambda: clock[0])
    again.restore(budgets.used())
    with pytest.raises(BudgetUsed):
        again.take("a", limits)
    clock[0] += used.value.retry_after
    again.take("a", limits)


def test_a_clock_set_back_locks_nobody_out() -> None:
    budget = Budget()
    budget.take(Limits(requests_per_minute=1), _NOON)
    budget.take(Limits(requests_per_minute=1), _NOON - 3600)


def test_requests_at_a_time_are_counted_until_their_end() -> None:
    budgets, limits = Budgets(lambda: _NOON), Limits(concurrent=1)
    budgets.take("a", limits)
    with pytest.raises(BudgetUsed):
        budgets.take("a", limits)
    assert budgets.running() == 1
    budgets.end("a", 0)
    budgets.take("a", limits)
