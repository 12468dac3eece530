"""The gateway's process: without privileges, it gets listeners, connections and keys from the daemon.

Run as `python -m controller.gateway.process FD`, where FD is its end of the socket pair. It ends with the daemon.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - loaded while files can still be read
import contextlib
import encodings.idna  # noqa: F401 - as above
import gc
import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import anyio._backends._asyncio  # noqa: F401 - as above
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from controller.gateway.app import Gateway
from controller.gateway.config import RUN, Access, Target, User, from_json
from controller.gateway.request import Refused, error_of
from controller.gateway.upstream import UpstreamError, tls_context
from controller.kinds.common.http_head import StrictConnection
from controller.processes.channel import Channel, ChannelClosed, Message
from controller.processes.privileges import drop_privileges

USER = 18_090
"""Uid and gid of the process: no user of a host has an id from 10000 up, and no sandbox this one."""
_REPORT_SECONDS, _REPORT_GAP_SECONDS = 1.0, 0.05
_PROBE_SECONDS = 30.0
_MOST_CONNECTIONS = 64
_MOST_CONNECTIONS_OF_HOST = 512
_HEAD_SECONDS = 30.0


class _Protocol(H11Protocol):
    """uvicorn's protocol with strict heads, a limit of connections, and a deadline for the head of a request."""

    most = _MOST_CONNECTIONS
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: StrictConnection = StrictConnection()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._missed)

    def _missed(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class's
        """Answer a head that parsers may read differently, and end the connection."""
        fault = self.conn.fault or "it is not HTTP/1.1; send it as RFC 9112 says"
        body = json.dumps(error_of(400, f"the request was not read: {fault}")).encode()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            length = str(len(body))
            headers = [("content-type", "application/json"), ("content-length", length), ("connection", "close")]
            answer = h11.Response(status_code=400, headers=headers)
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)


class _HostProtocol(_Protocol):
    most = _MOST_CONNECTIONS_OF_HOST


class _Listener:
    """A listening socket, and its connections."""

    def __init__(self, server: asyncio.Server, state: ServerState) -> None:
        self._server, self._state = server, state

    def close(self) -> None:
        """Accept no more connections, and end those that are open."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()


class DaemonSide:
    """The daemon, over the channel. Its answers come by number."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        self._channel, self._loop = channel, loop
        self._answers: dict[int, asyncio.Future[tuple[Message, list[int]]]] = {}
        self._number = 0
        self._outgoing: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._send_all, name="to the daemon", daemon=True).start()

    def tell(self, message: Message) -> None:
        """Send a message, without waiting."""
        self._outgoing.put(message)

    def state(self, target: str, reason: str, message: str) -> None:
        """See app.Daemon."""
        self.tell({"type": "state", "target": target, "reason": reason, "message": message})

    async def open(self, target: Target) -> tuple[socket.socket, Callable[[], None]]:
        """Have the daemon connect to a model server. Raises UpstreamError."""
        number, answer, sockets = await self._ask({"type": "open", "target": target.id})

        def end() -> None:
            self.tell({"type": "closed", "number": number})

        if not sockets:
            raise UpstreamError("Unreachable", str(answer.get("message", "the daemon gave no connection")))
        return socket.socket(fileno=sockets[0]), end

    async def authorize(self, token: str, namespace: str) -> str:
        """See app.Daemon."""
        _, answer, _ = await self._ask({"type": "authorize", "token": token, "namespace": namespace})
        if answer["status"] != 200:
            raise Refused(int(answer["status"]), str(answer["message"]))
        return str(answer["message"])

    def take_answer(self, message: Message, sockets: list[int]) -> None:
        """Take an answer of the daemon's."""
        waiting = self._answers.pop(message["number"], None)
        if waiting is None or waiting.done():
            for descriptor in sockets:
                os.close(descriptor)
            if sockets:
                self.tell({"type": "closed", "number": message["number"]})
            return
        waiting.set_result((message, sockets))

    async def _ask(self, message: Message) -> tuple[int, Message, list[int]]:
        self._number += 1
        number = self._number
        waiting = self._answers[number] = self._loop.create_future()
        self.tell({**message, "number": number})
        try:
            answer, sockets = await waiting
        except asyncio.CancelledError:
            self.tell({"type": "closed", "number": number})
            raise
        return number, answer, sockets

    def _send_all(self) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                self._channel.send(self._outgoing.get())


class Process:
    """The process: what the daemon says is done in the event loop."""

    def __init__(self, channel: Channel, tls: Any) -> None:
        self._channel, self._tls = channel, tls
        self._listeners: dict[str, _Listener] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the daemon is gone."""
        loop = asyncio.get_running_loop()
        self._daemon = DaemonSide(self._channel, loop)
        self._gateway = Gateway(self._daemon, self._tls)
        incoming: asyncio.Queue[tuple[Message, list[int]]] = asyncio.Queue()
        threading.Thread(target=self._receive_all, args=(loop, incoming), name="from the daemon", daemon=True).start()
        for work in (self._report(), self._probe()):
            self._tasks.add(asyncio.create_task(work))
        self._daemon.tell({"type": "ready"})
        while True:
            await self._take(*await incoming.get())

    def _receive_all(self, loop: asyncio.AbstractEventLoop, incoming: "asyncio.Queue[Any]") -> None:
        with contextlib.suppress(ChannelClosed, RuntimeError):
            while True:
                loop.call_soon_threadsafe(incoming.put_nowait, self._channel.receive())
        os._exit(0)  # the daemon is gone, and so is everything that this process is for

    async def _take(self, message: Message, sockets: list[int]) -> None:
        match message["type"]:
            case "config":
                if "used" in message:
                    self._gateway.budgets.restore(message["used"])
                config = from_json(message["config"])
                for listener in self._listeners.keys() - set(message["listening"]):
                    self._listeners.pop(listener).close()
                self._gateway.configure(config)
            case "listen":
                await self._listen(message["listener"], sockets[0], is_host=message["host"])
            case "connect":
                await self._connect(sockets[0], Access(User.of_json(message["user"]), (message["target"],)))
            case "answer":
                self._daemon.take_answer(message, sockets)

    async def _listen(self, listener: str, number: int, *, is_host: bool) -> None:
        if (former := self._listeners.pop(listener, None)) is not None:
            former.close()
        config = _server_config(self._gateway.app(listener))
        state, protocol = ServerState(), _HostProtocol if is_host else _Protocol
        sock = socket.socket(fileno=number)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: protocol(config, state, {}, loop), sock=sock)
        self._listeners[listener] = _Listener(server, state)

    async def _connect(self, number: int, access: Access) -> None:
        """Serve one connection of the daemon's own."""
        config, state = _server_config(self._gateway.app(RUN, access)), ServerState()
        sock = socket.socket(fileno=number)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: _Protocol(config, state, {}, loop), sock)

    async def _report(self) -> None:
        """Report the use of every second to the daemon, and that of a budget of tokens at once."""
        gateway, reported = self._gateway, None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPORT_SECONDS):
                    await gateway.due.wait()
            gateway.due.clear()
            uses, gateway.uses = gateway.uses, {}
            budgets = {"used": gateway.budgets.usage(), "running": gateway.budgets.running()}
            if not uses and budgets == reported:
                continue
            reported = budgets
            entries = [
                {
                    "user": asdict(user),
                    "target": target,
                    "outcomes": dict(use.outcomes),
                    "tokensIn": use.tokens_in,
                    "tokensOut": use.tokens_out,
                    "firstBytes": use.first_bytes,
                }
                for (user, target), use in uses.items()
            ]
            self._daemon.tell({"type": "uses", "uses": entries, **budgets})
            await asyncio.sleep(_REPORT_GAP_SECONDS)

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            await self._gateway.probe_again()


def _server_config(app: Any) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
    )
    config.load()
    return config


def main() -> None:
    """Be the gateway's process."""
    logging.disable(logging.CRITICAL)  # requests are counted, and their contents are nobody's
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the daemon's terminal
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    tls = tls_context()
    drop_privileges(USER)
    gc.freeze()
    asyncio.run(Process(channel, tls).run())


if __name__ == "__main__":
    main()
