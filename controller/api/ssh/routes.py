"""SSH to a sandbox: the bytes of one SSH connection over a WebSocket.

A client on the Unix socket may offer the subprotocol `raw.ssh.paddock`. If accepted, the handshake is followed by the
bytes of SSH as they are, and the socket is the SSH process's from then on. Other clients send and get binary frames.
"""

import asyncio
import contextlib
import socket
import time
from typing import Annotated

import anyio
import structlog
from fastapi import APIRouter, Depends, WebSocket
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from controller.api.common import errors, models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.query_names import takes_query
from controller.api.server.peer_credentials import CONNECTION
from controller.api.server.stalled_clients import ClientTransport
from controller.api.ssh.protocol import PAUSE_SECONDS, PROTOCOL, RAW
from controller.api.streams.relay import receive_fairly
from controller.api.streams.tunnel import hand_over, local_transport, wait_for_disconnect
from controller.kinds.access.access import AccessRequest, Caller
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.access import access
from controller.service.errors import (
    BadRequest,
    Conflict,
    NotFound,
    ServiceError,
    ServiceUnavailable,
    TooManyRequests,
)
from controller.service.front.ssh import SshFront, SshLogin
from controller.service.services import Services

_PIECE_BYTES = 1 << 17
_log = structlog.get_logger("paddock.api")

_KEY_ANSWERS = models.failures(BadRequest, NotFound, Conflict, TooManyRequests, ServiceUnavailable)

routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])


class SshHostInfo(models.Shape):
    """Identity of this daemon for SSH clients. `hostKey` is a line as of known_hosts, without the name."""

    instance: str
    hostKey: str
    address: str


async def front_of(connection: HTTPConnection) -> SshFront:
    """Return the SSH front of the request's application."""
    front: SshFront = connection.app.state.ssh
    return front


Front = Annotated[SshFront, Depends(front_of)]


@routes.get("/ssh", operation_id="getSshHost", responses=models.failures(NotFound, ServiceUnavailable))
async def host(front: Front) -> SshHostInfo:
    """Return the host key that this daemon shows to SSH clients, and the name under which they know it."""
    found = await run_in_threadpool(front.host)
    return SshHostInfo(instance=found.instance, hostKey=found.host_key, address=found.address)


class SshKeyText(BaseModel):
    """A public key: the line of a file that ends in .pub."""

    model_config = ConfigDict(extra="forbid")

    publicKey: Annotated[str, Field(min_length=1, max_length=4096)]


class SshKeyInfo(models.Shape):
    """A public key of the caller."""

    fingerprint: str
    type: str
    comment: str


class SshKeyList(models.Shape):
    """The caller's public keys, for the SSH port."""

    items: list[SshKeyInfo]


@routes.post("/ssh/keys", operation_id="addSshKey", responses=_KEY_ANSWERS, status_code=201)
def add_key(front: Front, body: SshKeyText) -> SshKeyInfo:
    """Add a public key of the caller: whoever has the private key acts as the caller at the SSH port."""
    key = front.add_key(_caller(), body.publicKey)
    return SshKeyInfo(fingerprint=key.fingerprint, type=key.type, comment=key.comment)


@routes.get("/ssh/keys", operation_id="listSshKeys", responses=_KEY_ANSWERS)
def list_keys(front: Front) -> SshKeyList:
    """List the caller's public keys."""
    keys = front.keys(_caller())
    return SshKeyList(items=[SshKeyInfo(fingerprint=k.fingerprint, type=k.type, comment=k.comment) for k in keys])


@routes.delete("/ssh/keys/{fingerprint:path}", operation_id="removeSshKey", responses=_KEY_ANSWERS)
def remove_key(front: Front, fingerprint: str) -> SshKeyList:
    """Remove a public key of the caller, and end its connections. Return the others."""
    front.remove_key(_caller(), fingerprint)
    return list_keys(front)


def _caller() -> Caller:
    caller = access.caller()
    if caller is None:
        raise BadRequest("a key belongs to a user of the host or to a token; the caller is neither")
    return caller


class Carried:
    """Bytes of a connection that the SSH process has: none is ours."""

    came = 0
    waiting = 0


@routes.websocket("/namespaces/{namespace}/sandboxes/{name}/ssh")
@takes_query()
async def ssh(services: UseCases, front: Front, websocket: WebSocket, namespace: str, name: str) -> None:
    """Connect to the SSH server of a sandbox."""
    try:
        sandbox = await run_in_threadpool(services.objects.get, SANDBOX, namespace, name)
        await run_in_threadpool(front.host)
    except ServiceError as error:
        await websocket.send_denial_response(errors.answer(error))
        return
    login, began = SshLogin(access.caller(), namespace, name, sandbox.uid), time.monotonic()
    try:
        link = local_transport(websocket, RAW)
        if link is not None:
            await _handed_over(websocket, link, front, login)
        else:
            await _relayed(websocket, front, login)
    finally:
        _record_end(services, login, time.monotonic() - began)


async def _handed_over(websocket: WebSocket, link: ClientTransport, front: SshFront, login: SshLogin) -> None:
    """Give the client's socket to the SSH process."""
    if not await hand_over(websocket, link, RAW, Carried()):
        return
    try:
        await _serve(websocket, front, login, link.get_extra_info("socket").fileno())
    finally:
        link.abort()


async def _serve(websocket: WebSocket, front: SshFront, login: SshLogin, descriptor: int) -> None:
    """Have the connection served until it ends, or the caller's right to it does."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    try:
        end = await run_in_threadpool(front.serve, descriptor, login, lambda: _set(loop, over))
    except ServiceError as error:
        _log.warning("ssh connection not served", error=str(error))
        return
    waiting = (asyncio.create_task(over.wait()), asyncio.create_task(wait_for_disconnect(websocket)))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(end)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(event.set)


async def _relayed(websocket: WebSocket, front: SshFront, login: SshLogin) -> None:
    """Relay frames to a socket that the SSH process has the other end of."""
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
    link: ClientTransport | None = websocket.scope["state"].get(CONNECTION)
    if link is not None:
        link.pause_seconds = PAUSE_SECONDS
    ours, process_end = socket.socketpair()
    over = asyncio.Event()
    with ours:
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            end = await run_in_threadpool(front.serve, process_end.fileno(), login, lambda: _set(loop, over))
        except ServiceError as error:
            await websocket.close(1011, str(error)[:120])
            return
        finally:
            process_end.close()
        tasks = (asyncio.create_task(_in(websocket, ours)), asyncio.create_task(_out(websocket, ours)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(end)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
        await websocket.close()


async def _in(websocket: WebSocket, sock: socket.socket) -> None:
    """Pass on what the client sends, until it disconnects."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
        while (message := await websocket.receive())["type"] != "websocket.disconnect":
            if data := message.get("bytes"):
                await loop.sock_sendall(sock, data)


async def _out(websocket: WebSocket, sock: socket.socket) -> None:
    """Pass on what the SSH process sends, until it ends the connection."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
        while data := await receive_fairly(loop, sock, _PIECE_BYTES):
            await websocket.send_bytes(data)


def _record_end(services: Services, login: SshLogin, seconds: float) -> None:
    ask = AccessRequest("use", SANDBOX.name, login.namespace, login.name, "ssh")
    services.recorder.record_end(ask, {"ended": True, "seconds": round(seconds, 1)})
