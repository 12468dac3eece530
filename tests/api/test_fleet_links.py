"""A connection to another host's daemon: reading its answer ends wherever that stops."""

import asyncio
from typing import cast

import h11
import pytest

from controller.api.fleet.links import Link
from tests.byte_by_byte import DEADLINE_SECONDS, stops

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


async def read(data: bytes, stop: str) -> list[object]:
    reader = asyncio.StreamReader()
    link = Link(("a", "a"), reader, cast("asyncio.StreamWriter", None), 0.0)
    link.http.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    link.http.send(h11.EndOfMessage())

    async def whole() -> list[object]:
        events: list[object] = []
        while not events or not isinstance(events[-1], h11.EndOfMessage | h11.ConnectionClosed):
            events.append(await link.next_event())
        return events

    reading = asyncio.create_task(whole())
    for byte in data:
        reader.feed_data(bytes([byte]))
        await asyncio.sleep(0)
    if stop == "close":
        reader.feed_eof()
    elif stop == "cut":
        reader.set_exception(ConnectionResetError("cut"))
    async with asyncio.timeout(DEADLINE_SECONDS if stop == "deadline" else 20.0):
        return await reading


def test_an_answer_of_another_host_ends_wherever_it_stops() -> None:
    errors = {"deadline": TimeoutError, "cut": ConnectionResetError, "close": h11.RemoteProtocolError}
    for data, stop in stops(ANSWER):
        with pytest.raises(errors[stop]):
            asyncio.run(read(data, stop))
    events = asyncio.run(read(ANSWER, "close"))
    assert b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data)) == b"ok"
