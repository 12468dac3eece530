"""Authentication of every request. Only /healthz is answered without it."""

import time
from collections.abc import Callable

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from controller.api.common.errors import refuse
from controller.api.fleet.identity import HEADER, identity_of
from controller.api.server.peer_credentials import STATE
from controller.api.server.subprotocol_token import PREFIX
from controller.kinds.access.access import Caller
from controller.kinds.common.http_head import LOCAL_NAMES, is_local
from controller.service.access.access import acting
from controller.service.access.audit import Recorder
from controller.service.access.authenticate import Identify, Peer, bearer
from controller.service.errors import BadRequest, ServiceError, Unauthorized

Authenticator = Callable[[Peer | None, str, str], Caller | None]
_OPEN = ("/healthz",)
_OF_A_PAGE = ("origin", "sec-fetch-site")  # headers that browsers set and no page can omit
_KNOWN_SECONDS = 5.0  # then a peer's names and groups are looked up again
_MOST_PEERS = 4096
_LOOKUPS = 8  # at a time
_MOST_SHOWN = 100


def header_of_page(headers: Headers) -> str:
    """Return the header by which a request is known to come from a web page; empty if none is there."""
    return next((header_name.title() for header_name in _OF_A_PAGE if header_name in headers), "")


def in_process(_peer: Peer | None, _authorization: str, _source: str) -> Caller | None:
    """Take a caller within this process for Paddock itself. No listener uses this."""
    return None


def authenticator_of(identify: Identify) -> Authenticator:
    """Return an authenticator: by token if one is given, else by the socket's peer credentials."""

    def who(peer: Peer | None, authorization: str, source: str) -> Caller:
        if authorization:
            return identify.token(bearer(authorization), source)
        if peer is None:
            raise Unauthorized("this listener needs a token: set PADDOCK_TOKEN_FILE to a file that holds one")
        return identify.peer(peer)

    return who


class Authenticate:
    """Set the caller of each request, or answer 401 (403 for a known user without grants).

    A web page's request needs a token: it does not act as the user whose browser or forwarded socket it came through.
    So does one to another name than this host's own: a page may have made that name lead here.
    """

    def __init__(self, app: ASGIApp, who: Authenticator, recorder: Recorder) -> None:
        self._app = app
        self._who = who
        self._recorder = recorder
        self._peers = _Peers(who)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._caller(scope)
        except ServiceError as error:
            await run_in_threadpool(self._recorder.record_unknown, _source(scope), str(error))
            await refuse(error, scope, receive, send)
            return
        with acting(caller) as refusals:
            try:
                await self._app(scope, receive, send)
            finally:
                for ask, why in refusals:
                    await run_in_threadpool(self._recorder.record_refusal, ask, why)

    async def _caller(self, scope: Scope) -> Caller | None:
        if (forwarded := identity_of(scope)) is not None:
            return forwarded.caller
        peer = scope.get("state", {}).get(STATE)
        headers = Headers(scope=scope)
        if HEADER in headers:
            raise BadRequest(f"the header {HEADER} is for the fleet listener, from other daemons; send none")
        authorizations = headers.getlist("authorization")
        if len(authorizations) > 1:
            raise BadRequest("there is more than one Authorization header; send one")
        if authorizations and not authorizations[0].strip():  # fail closed: do not fall back to peer credentials
            raise Unauthorized("the Authorization header is empty; it must be `Bearer TOKEN`")
        source = _source(scope)
        page = header_of_page(headers)
        if page and peer is not None and not authorizations:
            raise Unauthorized(
                f"a web page's request (it has the header {page}) needs a token: send `Authorization: Bearer"
                f" TOKEN`, with a WebSocket the subprotocol {PREFIX.decode()}TOKEN in base64url"
            )
        if not authorizations and peer is not None:
            _check_host(headers)
            return await self._peers.caller(peer, source)
        return await run_in_threadpool(self._who, peer, authorizations[0] if authorizations else "", source)


def _check_host(headers: Headers) -> None:
    """Refuse a local user's request to a foreign name. Raises Unauthorized."""
    hosts = headers.getlist("host")
    if len(hosts) == 1 and is_local(hosts[0]):
        return
    problem = f"`{hosts[0][:_MOST_SHOWN]}` is not a name of this host" if hosts else "it is missing"
    raise Unauthorized(
        f"Host header: {problem}; over the socket send `Host: {LOCAL_NAMES[0]}` (or localhost), or a token"
    )


class _Peers:
    """Callers by peer credentials. Lookups of users may be slow: they have threads of their own and a short cache."""

    def __init__(self, who: Authenticator) -> None:
        self._who = who
        self._known: dict[Peer, tuple[float, Caller | None]] = {}
        self._limiter: anyio.CapacityLimiter | None = None

    async def caller(self, peer: Peer, source: str) -> Caller | None:
        """Return the caller. Raises what `who` raises, uncached."""
        until, caller = self._known.get(peer, (0.0, None))
        if time.monotonic() < until:
            return caller
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_LOOKUPS)
        caller = await anyio.to_thread.run_sync(self._who, peer, "", source, limiter=self._limiter)
        if len(self._known) >= _MOST_PEERS:
            self._known.clear()
        self._known[peer] = (time.monotonic() + _KNOWN_SECONDS, caller)
        return caller


def _source(scope: Scope) -> str:
    peer, client = scope.get("state", {}).get(STATE), scope.get("client")
    return f"unix pid {peer.pid} uid {peer.uid}" if peer else f"tcp {client[0]}" if client else ""
