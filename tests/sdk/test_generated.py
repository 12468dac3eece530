"""The blocking client is generated from that of asyncio, has the same names, and retries alike."""

import asyncio
import inspect
from collections.abc import Iterator

import httpx
import pytest

import paddock
from paddock._client.connection import RetryingTransport
from paddock._transport.aio import RetryingAsyncTransport
from tests.sdk.unasync import TARGET, generate


def test_the_blocking_client_is_up_to_date() -> None:
    stale = [name for name, text in generate().items() if (TARGET / name).read_text() != text]
    assert stale == [], "run `python -m tests.sdk.unasync`"
    assert {path.name for path in TARGET.glob("*.py")} == set(generate())


def public(class_: type) -> Iterator[str]:
    return (name for name in dir(class_) if not name.startswith("_") and name not in ("aclose", "close"))


@pytest.mark.parametrize("name", [name for name in paddock.__all__ if f"Async{name}" in paddock.__all__])
def test_both_clients_have_the_same_names(name: str) -> None:
    blocking, asynchronous = getattr(paddock, name), getattr(paddock, f"Async{name}")
    assert set(public(blocking)) == set(public(asynchronous))
    for entry in public(blocking):
        first, second = getattr(blocking, entry), getattr(asynchronous, entry)
        assert (inspect.getdoc(first) or entry) != "", entry
        if inspect.isfunction(first):
            assert inspect.signature(first).parameters.keys() == inspect.signature(second).parameters.keys(), entry


class Daemon:
    """Server that refuses so many times with this status."""

    def __init__(self, refusals: int, status: int) -> None:
        self.asked, self.slept = 0, list[float]()
        self._refusals, self._status = refusals, status

    def answer(self, _request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if self.asked <= self._refusals:
            return httpx.Response(self._status, headers={"Retry-After": "2"})
        return httpx.Response(200)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [(429, "POST", 200), (429, "GET", 200), (503, "GET", 200), (503, "POST", 503), (500, "GET", 500)],
)
def test_both_clients_heed_retry_after(status: int, method: str, expected: int) -> None:
    async def ask(daemon: Daemon) -> int:
        transport = RetryingAsyncTransport(httpx.MockTransport(daemon.answer), daemon.sleep)
        async with httpx.AsyncClient(transport=transport) as client:
            return (await client.request(method, "http://paddock/", content=b"x")).status_code

    daemons = [Daemon(2, status), Daemon(2, status)]
    transport = RetryingTransport(httpx.MockTransport(daemons[0].answer), daemons[0].slept.append)
    with httpx.Client(transport=transport) as client:
        assert client.request(method, "http://paddock/", content=b"x").status_code == expected
    assert asyncio.run(ask(daemons[1])) == expected
    assert daemons[0].slept == daemons[1].slept == ([2.0, 2.0] if expected == 200 else [])
