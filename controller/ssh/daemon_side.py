"""The daemon, as the SSH process sees it: requests over the channel, with answers by number."""

import asyncio
import contextlib
import os
import queue
import threading

from controller.processes.channel import Channel, ChannelClosed, Message

_COUNT_SECONDS = 5.0


class Refused(Exception):
    """The daemon's refusal; the message is for the user."""


class DaemonSide:
    """Sends without waiting, and hands out the answers."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._loop = channel, asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Future[list[int]]] = {}
        self._number = 0
        self._outgoing: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._bytes_in = self._bytes_out = 0
        threading.Thread(target=self._send_all, name="to the daemon", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send a message, without waiting."""
        self._outgoing.put(message)

    async def open(self, connection: int, what: str, **details: object) -> "Opened":
        """Have the daemon open a channel. Raises Refused."""
        self._number += 1
        number = self._number
        answer = self._answers[number] = self._loop.create_future()
        self.send({"type": "open", "connection": connection, "number": number, "what": what, **details})
        try:
            descriptors = await answer
        except asyncio.CancelledError:
            self.closed(connection, number)
            raise
        finally:
            self._answers.pop(number, None)
        return Opened(self, connection, number, descriptors)

    async def login(self, connection: int, *, asks: bool, **details: object) -> None:
        """Ask if a client of the port may use its sandbox; unless it only `asks`, it does so now. Raises Refused."""
        self._number += 1
        number = self._number
        answer = self._answers[number] = self._loop.create_future()
        self.send({"type": "login", "connection": connection, "number": number, "asks": asks, **details})
        try:
            await answer
        finally:
            self._answers.pop(number, None)

    def closed(self, connection: int, number: int) -> None:
        """Report that a channel is not used any more."""
        self.send({"type": "closed", "connection": connection, "number": number})

    def count(self, *, bytes_in: int = 0, bytes_out: int = 0) -> None:
        """Count bytes from and to clients; the daemon hears of them a moment later."""
        if not self._bytes_in and not self._bytes_out:
            self._loop.call_later(_COUNT_SECONDS, self._send_counts)
        self._bytes_in += bytes_in
        self._bytes_out += bytes_out

    def _send_counts(self) -> None:
        self.send({"type": "bytes", "in": self._bytes_in, "out": self._bytes_out})
        self._bytes_in = self._bytes_out = 0

    def answered(self, message: Message, descriptors: list[int]) -> None:
        """Take an answer of the daemon's."""
        waiting = self._answers.get(message["number"])
        if waiting is None or waiting.done():
            for descriptor in descriptors:
                os.close(descriptor)
        elif "message" in message:
            waiting.set_exception(Refused(str(message["message"])))
        else:
            waiting.set_result(descriptors)

    def _send_all(self) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                self._channel.send(self._outgoing.get())


class Opened:
    """A channel that the daemon has opened, with its descriptors, which are the caller's."""

    def __init__(self, daemon: DaemonSide, connection: int, number: int, descriptors: list[int]) -> None:
        self._daemon, self._connection, self._number = daemon, connection, number
        self.descriptors = descriptors

    def count(self, *, bytes_in: int = 0, bytes_out: int = 0) -> None:
        """Count bytes from and to the client."""
        self._daemon.count(bytes_in=bytes_in, bytes_out=bytes_out)

    def control(self, type_: str, **details: object) -> None:
        """Send a terminal's size, or a signal."""
        self._daemon.send({"type": type_, "connection": self._connection, "number": self._number, **details})

    def close(self) -> None:
        """Report that it is not used any more."""
        self._daemon.closed(self._connection, self._number)
