"""So many requests a second of each caller."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.middleware.load import BURST_SECONDS, RateLimiter


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_a_burst_then_a_steady_rate_per_caller() -> None:
    clock = Clock()
    rates = RateLimiter(2.0, clock)
    assert [rates.take("a") for _ in range(10)] == [0.0] * 10
    assert rates.take("a") == pytest.approx(0.5)
    assert rates.take("b") == 0.0
    clock.at += 0.5
    assert rates.take("a") == 0.0
    assert rates.take("a") == pytest.approx(0.5), "being refused costs nothing"


def test_a_rate_below_one_and_no_rate() -> None:
    slow = RateLimiter(0.01, Clock())
    assert (slow.take("a"), slow.take("a")) == (0.0, pytest.approx(100.0))
    assert {RateLimiter(0.0).take("a") for _ in range(100)} == {0.0}


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=200), st.floats(0.5, 50.0))
def test_never_more_than_the_burst_and_the_rate(pauses: list[float], per_second: float) -> None:
    clock = Clock()
    rates, number = RateLimiter(per_second, clock), 0
    for pause in pauses:
        clock.at += pause
        number += rates.take("a") == 0.0
        assert number <= per_second * (clock.at - 1000.0) + max(1.0, per_second * BURST_SECONDS) + 1e-6


def test_those_who_ask_no_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.api.middleware.load._MOST_CALLERS", 10)
    clock = Clock()
    rates = RateLimiter(1.0, clock)
    for number in range(100):
        clock.at += 2.0
        rates.take(str(number))
    assert len(rates._full_at) <= 11
