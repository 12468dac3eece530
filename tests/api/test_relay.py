"""The relay of bodies: a client has the same time for each piece, taken or not."""

import asyncio

import h11
from starlette.types import Message

from controller.api.streams.relay import ServerLink, pass_body


class Broken(ServerLink):
    """A server that takes nothing."""

    async def write(self, data: bytes) -> None:
        raise ConnectionResetError

    async def read(self) -> bytes:
        raise NotImplementedError


def test_untaken_body_may_not_stall_either() -> None:
    async def receive() -> Message:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(), "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    async def relay() -> BaseException | None:
        server = Broken()
        server.http.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "9")]))
        passing = asyncio.create_task(pass_body(receive, server, None, stall_seconds=0))
        await asyncio.wait({passing}, timeout=20)
        return passing.exception()

    pieces = [b"b", b"a"]
    assert isinstance(asyncio.run(relay()), TimeoutError)
    assert not pieces
