"""Retries of a client after a 429 response."""

from collections.abc import Iterator

import httpx

from paddock._client.connection import RetryingTransport


class Daemon:
    """Server that refuses so many times, with these headers."""

    def __init__(self, refusals: int, **headers: str) -> None:
        self.asked: list[bytes] = []
        self.slept: list[float] = []
        self._refusals, self._headers = refusals, headers

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.read())
        if len(self.asked) <= self._refusals:
            return httpx.Response(429, headers=self._headers)
        return httpx.Response(200)

    def ask(self, content: bytes | Iterator[bytes] = b"x") -> int:
        with httpx.Client(transport=RetryingTransport(httpx.MockTransport(self._answer), self.slept.append)) as client:
            return client.post("http://paddock/", content=content).status_code


def test_a_request_is_retried_after_the_stated_wait() -> None:
    daemon = Daemon(2, **{"Retry-After": "3"})
    assert daemon.ask() == 200
    assert (daemon.slept, daemon.asked) == ([3.0, 3.0], [b"x"] * 3)


def test_retries_are_bounded() -> None:
    daemon = Daemon(99, **{"Retry-After": "1"})
    assert daemon.ask() == 429
    assert len(daemon.asked) == 6


def test_other_responses_are_not_retried() -> None:
    for daemon in (Daemon(1), Daemon(1, **{"Retry-After": "100"}), Daemon(1, **{"Retry-After": "Sat, 1 Jan"})):
        assert (daemon.ask(), len(daemon.asked)) == (429, 1)
    assert Daemon(1, **{"Retry-After": "1"}).ask(iter([b"x"])) == 429
