"""Budgets of a source of models: requests in a minute, requests at a time, tokens in a day (UTC)."""

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


@dataclass(slots=True)
class Budget:
    """Use of one source. `seconds` counts its requests by the end of their second, `day` is the number of the day."""

    seconds: dict[int, int] = field(default_factory=dict)
    day: int = 0
    tokens: int = 0
    running: int = 0

    def take(self, limits: Limits, now: float) -> None:
        """Count a request that begins; `now` is Unix seconds. Raises BudgetUsed, and counts nothing then."""
        self._forget(now)
        if limits.concurrent is not None and self.running >= limits.concurrent:
            raise BudgetUsed(f"{limits.concurrent} requests run at a time, and no more", 1)
        if limits.tokens_per_day is not None and self.tokens >= limits.tokens_per_day:
            left = math.ceil((self.day + 1) * _DAY - now)
            raise BudgetUsed(f"its {limits.tokens_per_day} tokens of this day (UTC) are used up", max(left, 1))
        if limits.requests_per_minute is not None and sum(self.seconds.values()) >= limits.requests_per_minute:
            left = math.ceil(min(self.seconds) + _MINUTE - now)
            raise BudgetUsed(f"its {limits.requests_per_minute} requests of this minute are used up", max(left, 1))
        second = int(now) + 1  # its end, so that no minute holds more
        self.seconds[second] = self.seconds.get(second, 0) + 1
        self.running += 1

    def end(self, tokens: int, now: float) -> None:
        """Count the end of a request, and its tokens."""
        self._forget(now)
        self.running -= 1
        self.tokens += tokens

    def _forget(self, now: float) -> None:
        today = int(now // _DAY)
        if today != self.day:
            self.day, self.tokens = today, 0
        for each in [each for each in self.seconds if not now - _MINUTE < each <= now + 1]:  # also of a clock set back
            del self.seconds[each]


class Budgets:
    """Budgets of all sources, by id. `used` is what an earlier process counted."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._budgets: dict[str, Budget] = {}

    def take(self, target: str, limits: Limits) -> None:
        """Count a request that begins. Raises BudgetUsed."""
        self._budgets.setdefault(target, Budget()).take(limits, self._clock())

    def end(self, target: str, tokens: int) -> None:
        """Count the end of a request."""
        self._budgets.setdefault(target, Budget(running=1)).end(tokens, self._clock())

    def running(self) -> int:
        """Return the number of requests that run."""
        return sum(each.running for each in self._budgets.values())

    def used(self) -> dict[str, Any]:
        """Return the use as JSON; an unused budget is left out."""
        found = self._budgets.items()
        return {
            target: {"seconds": {str(each): count for each, count in use.seconds.items()}, **_of_day(use)}
            for target, use in found
            if use.seconds or use.tokens
        }

    def restore(self, used: Mapping[str, Any]) -> None:
        """Take over the use that an earlier process counted."""
        for target, use in used.items():
            seconds = {int(each): int(count) for each, count in use["seconds"].items()}
            self._budgets[target] = Budget(seconds, int(use["day"]), int(use["tokens"]))


def _of_day(use: Budget) -> dict[str, int]:
    return {"day": use.day, "tokens": use.tokens}
