"""Asking again when the daemon says that it is asked too often: nothing was done then."""

import time
from collections.abc import Callable

import httpx

_MOST_TIMES = 5
_LONGEST_SECONDS = 10.0


class Patient(httpx.BaseTransport):
    """Another transport, but an answer 429 with `Retry-After` is heeded, a few times, before it is given.

    A body that is sent as it comes can't be sent again: its answer is given at once.
    """

    def __init__(self, inner: httpx.BaseTransport, sleep: Callable[[float], None] = time.sleep) -> None:
        self._inner, self._sleep = inner, sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        same = isinstance(request.stream, httpx.ByteStream)
        for _ in range(_MOST_TIMES if same else 0):
            answer = self._inner.handle_request(request)
            wait = _seconds(answer)
            if wait is None:
                return answer
            answer.close()
            self._sleep(wait)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


def _seconds(answer: httpx.Response) -> float | None:
    told = answer.headers.get("Retry-After", "")
    if answer.status_code != 429 or not told.isdecimal() or float(told) > _LONGEST_SECONDS:
        return None
    return float(told)
