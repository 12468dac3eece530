"""Budgets of a source of models: requests in a minute, requests at a time, tokens in a day (UTC).

A request reserves the tokens that it may need when it begins, and is settled at its end. Its reservation ends with the
process; what was spent until then is in `usage`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.gateway.config import Limits

_MINUTE, _DAY = 60, 86_400


class BudgetUsed(Exception):
    """A budget is used up; `retry_after` is in whole seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(eq=False, slots=True)
class Reservation:
    """Tokens of one request that runs: `estimate` until they are settled, and how many of them are `spent` so far."""

    target: str
    estimate: int
    spent: int = 0
    settled: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that no other request may use."""
        return 0 if self.settled else max(self.estimate, self.spent)


@dataclass(slots=True)
class Budget:
    """Use of one source. `seconds` counts its requests by the end of their second, `day` is the number of the day.

    `tokens` are those of settled requests.
    """

    seconds: dict[int, int] = field(default_factory=dict)
    day: int = 0
    tokens: int = 0
    running: set[Reservation] = field(default_factory=set)

    def take(self, limits: Limits, now: float, reservation: Reservation) -> None:
        """Count a request that begins; `now` is Unix seconds. Raises BudgetUsed, and counts nothing then."""
        self._forget(now)
        if limits.concurrent is not None and len(self.running) >= limits.concurrent:
            raise BudgetUsed(f"{limits.concurrent} requests run at a time, and no more", 1)
        if limits.tokens_per_day is not None:
            self._check_tokens(limits.tokens_per_day, now, reservation)
        if limits.requests_per_minute is not None and sum(self.seconds.values()) >= limits.requests_per_minute:
            seconds_left = math.ceil(min(self.seconds) + _MINUTE - now)
            raise BudgetUsed(
                f"its {limits.requests_per_minute} requests of this minute are used up", max(seconds_left, 1)
            )
        second = int(now) + 1  # its end, so that no minute holds more
        self.seconds[second] = self.seconds.get(second, 0) + 1
        self.running.add(reservation)

    def settle(self, reservation: Reservation, tokens: int, now: float) -> None:
        """Count the tokens of a request in place of its reservation."""
        self._forget(now)
        if not reservation.settled:
            self.tokens += tokens
            reservation.settled = True

    def spent(self) -> int:
        """Return the tokens of settled requests, and those that running ones used so far."""
        return self.tokens + sum(reservation.spent for reservation in self.running if not reservation.settled)

    def _check_tokens(self, most: int, now: float, reservation: Reservation) -> None:
        """Raise BudgetUsed where the day's tokens are used up, or reserved by requests that run.

        A request that runs alone may use what is left, however much it may need.
        """
        if self.tokens >= most:
            seconds_left = math.ceil((self.day + 1) * _DAY - now)
            raise BudgetUsed(f"its {most} tokens of this day (UTC) are used up", max(seconds_left, 1))
        reserved = sum(active.tokens for active in self.running)
        if reserved and self.tokens + reserved + reservation.estimate > most:
            raise BudgetUsed(f"what is left of its {most} tokens of this day (UTC) is reserved by requests that run", 1)

    def _forget(self, now: float) -> None:
        today = int(now // _DAY)
        if today != self.day:
            self.day, self.tokens = today, 0
        for second in [
            second for second in self.seconds if not now - _MINUTE < second <= now + 1
        ]:  # also of a clock set back
            del self.seconds[second]


class Budgets:
    """Budgets of all sources, by id. `restore` takes over what an earlier process counted."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._budgets: dict[str, Budget] = {}

    def take(self, target: str, limits: Limits, estimate: int) -> Reservation:
        """Count a request that begins, and reserve the tokens that it may need. Raises BudgetUsed."""
        reservation = Reservation(target, estimate)
        self._budgets.setdefault(target, Budget()).take(limits, self._clock(), reservation)
        return reservation

    def settle(self, reservation: Reservation, tokens: int) -> None:
        """Count the tokens of a request in place of its reservation. A second time counts nothing."""
        self._budgets[reservation.target].settle(reservation, tokens, self._clock())

    def end(self, reservation: Reservation) -> None:
        """Count the end of a request; one that is not settled spent what was seen of it."""
        self.settle(reservation, reservation.spent)
        self._budgets[reservation.target].running.discard(reservation)

    def running(self) -> int:
        """Return the number of requests that run."""
        return sum(len(budget.running) for budget in self._budgets.values())

    def usage(self) -> dict[str, Any]:
        """Return the use as JSON; an unused budget is left out."""
        budgets = self._budgets.items()
        return {
            target: {"seconds": {str(second): count for second, count in use.seconds.items()}, **_of_day(use)}
            for target, use in budgets
            if use.seconds or use.spent()
        }

    def restore(self, usage: Mapping[str, Any]) -> None:
        """Take over the use that an earlier process counted."""
        for target, use in usage.items():
            seconds = {int(second): int(count) for second, count in use["seconds"].items()}
            budget = self._budgets.setdefault(target, Budget())  # requests may run already
            budget.seconds = seconds
            budget.day = int(use["day"])
            budget.tokens = int(use["tokens"])


def _of_day(use: Budget) -> dict[str, int]:
    return {"day": use.day, "tokens": use.spent()}
