"""Forwarding: a request for a sandbox of another host, or the files of a run there, goes to that host's daemon.

The daemon that is asked authenticates, authorises and audits it. Then it is passed on with the caller's identity, and
its body and answer pass as they are. The other daemon refuses it unless this very object is bound there (421): it is
looked up and passed on once more, then given up.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from controller.api.common import errors
from controller.api.common.models import MCP_PATH, PREFIX, SERVER_PATH, SERVERS_PATH, VERSION_PATH
from controller.api.common.replayed import Replayed
from controller.api.common.trace import SCOPE_KEY
from controller.api.fleet import relay
from controller.api.fleet.identity import encode, identity_of
from controller.api.fleet.links import Links, Unreachable
from controller.api.streams.relay import Gone
from controller.kinds.access.access import AccessRequest
from controller.kinds.planning.binding import UNBOUND
from controller.kinds.registry import discover
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.access import access
from controller.service.access.access import FAILURE_KEY
from controller.service.errors import Conflict, Forbidden, Misdirected, NotFound, ServiceError, ServiceUnavailable
from controller.service.fleet.locations import Location, Locations, OtherHost

MISDIRECTED = "misdirected"  # in the state of a request that came to the wrong host
_BELOW_A_SANDBOX = f"{PREFIX}/namespaces/{{namespace}}/sandboxes/{{name}}/"
_BELOW_A_RUN = f"{PREFIX}/namespaces/{{namespace}}/workflowruns/{{name}}/"
# What every daemon answers from the store. Any other path below a sandbox needs its host's engine.
BY_STORE = frozenset(("open", "close"))
# What each host answers for its own sandboxes and images: the daemon that is asked collects it of the others.
COLLECTED = frozenset(
    (
        *(f"{PREFIX}/sandboxes/-/metrics", f"{PREFIX}/namespaces/{{namespace}}/sandboxes/-/metrics"),
        *(f"{PREFIX}/images", f"{PREFIX}/images/inspect"),
    )
)
# What is done on the host that the request names, else on the one that is asked.
ON_ONE_HOST = frozenset(f"{PREFIX}/images/{work}" for work in ("pull", "push", "build", "delete"))
# Objects that each belong to one host, which alone knows them, or their status: hosted.py.
HOSTED = frozenset(
    path
    for kind in discover()
    if kind.by_host or kind.seen_by_host
    for path in (
        f"{PREFIX}/{kind.plural}",
        *(f"{PREFIX}/namespaces/{{namespace}}/{kind.plural}{suffix}" for suffix in ("", "/{name}")),
    )
)
# Besides, `paddock doctor` asks for the version, to find out if a host can be reached.
_ANSWERED_TO_HOSTS = COLLECTED | ON_ONE_HOST | HOSTED | {VERSION_PATH}
_WHY = f"{_BELOW_A_SANDBOX}why"  # also by what is stored: of a sandbox without a host, or with one that is away
_INSPECT = f"{_BELOW_A_SANDBOX}inspect"
# Other people's MCP servers run on the leading host, of all namespaces and of one.
LED = frozenset((SERVERS_PATH, SERVER_PATH))
BOUND_SECONDS = 3.0  # that a request waits for the sandbox's host
_POLL_SECONDS = 0.1
# The sandbox of a JSON-RPC message at the MCP endpoint, by the query of its address: namespace and name.
Messages = Callable[[bytes, Any], tuple[str, str] | None]


def needs_host(template: str) -> bool:
    """Return True if requests with this path go to the host of the sandbox or run."""
    below = template.startswith(_BELOW_A_SANDBOX) and template.removeprefix(_BELOW_A_SANDBOX) not in BY_STORE
    return below or template.startswith(_BELOW_A_RUN)


class Elsewhere(Exception):
    """The request's sandbox is bound to another host: `response` passes it on."""

    def __init__(self, response: "ForwardedResponse") -> None:
        super().__init__("the sandbox is bound to another host")
        self.response = response


class Forwarding:
    """Decides where requests go, by the locations of sandboxes. `messages` tells the sandbox of an MCP message."""

    def __init__(self, locations: Locations, links: Links, messages: Messages = lambda _query, _message: None) -> None:
        self.locations, self.links, self.messages = locations, links, messages

    async def find(self, connection: HTTPConnection, access_request: AccessRequest) -> Elsewhere | None:
        """Return where the request goes; None: it is answered here.

        Raises Misdirected for a forwarded one whose object is not bound to this host.
        """
        if connection.scope["route"].path in LED:
            return await self._to_leader(connection)
        forwarded = identity_of(connection.scope)
        by_mcp = connection.scope["route"].path == MCP_PATH
        target = await self._of_message(connection) if by_mcp else _of_route(connection, access_request)
        if target is None:
            if forwarded is None or connection.scope["route"].path in _ANSWERED_TO_HOSTS:
                return None
            raise Forbidden("the fleet listener serves requests for sandboxes of this host; send others to the API")
        access_request = target
        location = await self.locate(access_request)
        if forwarded is not None:
            if location is None or location.uid != forwarded.uid or location.host != self.locations.host:
                setattr(connection.state, MISDIRECTED, True)
                raise Misdirected(
                    f"{_subject(access_request)}: not bound to host `{self.locations.host}`; look up its host again"
                )
            return None
        if location is not None and location.host == UNBOUND and not by_mcp and not self._explains(connection):
            location = await self._bound(access_request, location)
        if location is None or location.host in (UNBOUND, self.locations.host):
            return None
        if connection.scope["route"].path == _WHY and await run_in_threadpool(self.locations.is_away, location.host):
            return None
        refuse = partial(_failed_call, connection) if by_mcp else errors.answer
        return Elsewhere(
            ForwardedResponse(
                self,
                _subject(access_request),
                location=location,
                connection=connection,
                locate=partial(self._again, access_request),
                refuse=refuse,
            )
        )

    def _explains(self, connection: HTTPConnection) -> bool:
        """Return True if this daemon tells what is known of a sandbox or run that has no host yet."""
        template = str(connection.scope["route"].path)
        answered_paths = (_WHY, _INSPECT) if self.locations.keeps_host else (_WHY,)
        return template in answered_paths or template.startswith(_BELOW_A_RUN)

    def to_host(self, connection: HTTPConnection, host: OtherHost, what: str) -> Elsewhere:
        """Return the way to that host for a request that it answers by itself."""
        location = Location("", host.name, host.address)

        async def fixed_location() -> Location:
            return location

        return Elsewhere(ForwardedResponse(self, what, location, connection, fixed_location))

    async def _to_leader(self, connection: HTTPConnection) -> Elsewhere | None:
        """Return the way to the leading host; None: that is this one.

        Raises Misdirected for a forwarded request if it is not; ServiceUnavailable if no host leads.
        """
        if connection.app.state.services.mcp_servers.are_kept():
            return None
        if identity_of(connection.scope) is not None:
            setattr(connection.state, MISDIRECTED, True)
            raise Misdirected(f"host `{self.locations.host}` does not lead the others; look for the leading one again")
        return Elsewhere(ForwardedResponse(self, "MCP servers", await self._leader(), connection, self._leader))

    async def _leader(self) -> Location:
        leader = await run_in_threadpool(self.locations.leader)
        if leader is None or leader.host == self.locations.host:
            raise ServiceUnavailable("MCP servers: no host leads the others now; try again in a few seconds")
        return leader

    async def _again(self, access_request: AccessRequest) -> Location:
        location = await self.locate(access_request)
        if location is None:
            raise NotFound(f"{_subject(access_request)}: it was deleted meanwhile", name=access_request.name)
        return location

    async def _of_message(self, connection: HTTPConnection) -> AccessRequest | None:
        """Return the use of the sandbox that an MCP message works in; None: none, or any daemon answers."""
        assert isinstance(connection, Request)
        try:
            message = await connection.json()  # cached from reading it for the route
        except ValueError:  # the endpoint says what is wrong with it
            return None
        query = connection.scope.get("query_string", b"")
        sandbox = await run_in_threadpool(self.messages, query, message)
        return None if sandbox is None else AccessRequest("use", SANDBOX.name, *sandbox, "mcp")

    async def _bound(self, access_request: AccessRequest, location: Location | None) -> Location | None:
        """Return the location once the object has a host; None: it is gone. Raises Conflict after a while."""
        until = time.monotonic() + BOUND_SECONDS
        while location is not None and location.host == UNBOUND:
            if time.monotonic() >= until:
                why = f": {location.waits}" if location.waits else "; see `paddock get hosts`"
                raise Conflict(f"{_subject(access_request)} has no host yet{why}", name=access_request.name)
            await asyncio.sleep(_POLL_SECONDS)
            location = await self.locate(access_request)
        return location

    async def locate(self, access_request: AccessRequest) -> Location | None:
        """Return the location of the request's object now."""
        return await run_in_threadpool(
            self.locations.of, access_request.kind, access_request.namespace or "", access_request.name
        )


class ForwardedResponse(Response):
    """The answer of another host's daemon to the request of `connection`, which is for `subject`.

    `locate` looks its host up once more; `refuse` tells failures.
    """

    def __init__(
        self,
        forwarding: Forwarding,
        subject: str,
        location: Location,
        connection: HTTPConnection,
        locate: Callable[[], Awaitable[Location]],
        refuse: Callable[[ServiceError], Response] = errors.answer,
    ) -> None:
        super().__init__()
        self._refuse = refuse
        self._forwarding, self._shown, self._location = forwarding, subject, location
        self._connection, self._locate = connection, locate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and the answer back."""
        client = relay.Client(scope, receive, send, _read_body(self._connection))
        try:
            if await self._passed_on(client):
                return
            self._location = await self._located_again()
            if not await self._passed_on(client):
                raise ServiceUnavailable(
                    f"{self._shown}: its host `{self._location.host}` says that it is not bound there;"
                    " nothing was done, try again in a second"
                )
        except Gone:
            pass
        except ServiceError as error:
            await self._refuse(error)(scope, receive, send)
        finally:
            client.forget()

    async def _passed_on(self, client: relay.Client) -> bool:
        """Pass the request on; return False if it came to the wrong host. Raises Conflict; ServiceUnavailable."""
        location, links = self._location, self._forwarding.links
        if not location.is_known:
            raise Conflict(
                f"{self._shown}: there is no host `{location.host}` (`paddock get hosts` shows those that there are);"
                " delete it, and create it on another one"
            )
        scheme = "https" if client.scope["scheme"] in ("https", "wss") else "http"
        identity = encode(self._forwarding.locations.name, access.caller(), location.uid, scheme)
        request = relay.Outgoing(location.host, location.address, identity, str(client.scope.get(SCOPE_KEY, "")))
        try:
            return await relay.pass_on(links, request, client)
        except Unreachable as error:
            raise ServiceUnavailable(
                f"{self._shown}: its host `{location.host}` can't be reached; what runs there goes on,"
                f" see `paddock get hosts` ({error})"
            ) from error
        except relay.Lost as error:
            raise ServiceUnavailable(
                f"{self._shown}: the connection to its host `{location.host}` was lost, and the request may"
                f" have been carried out; look before you repeat it ({error})"
            ) from error

    async def _located_again(self) -> Location:
        location = await self._locate()
        if location.host in (UNBOUND, self._forwarding.locations.host):
            raise ServiceUnavailable(f"{self._shown}: its host changed meanwhile; try again")
        return location


def _of_route(connection: HTTPConnection, access_request: AccessRequest) -> AccessRequest | None:
    return access_request if needs_host(str(connection.scope["route"].path)) else None


def _read_body(connection: HTTPConnection) -> bytes | None:
    """Return the body of the request if it was read already: for its route, or for the audit log."""
    body: bytes | None = getattr(connection, "_body", None)
    return body


def _failed_call(connection: HTTPConnection, error: ServiceError) -> Response:
    """Return the answer to an MCP message whose sandbox's host did not answer: a failed call, as MCP has them."""
    return Replayed(connection.app.state.mcp, _read_body(connection), **{FAILURE_KEY: error})


def _subject(access_request: AccessRequest) -> str:
    return f"{access_request.kind.lower()} `{access_request.name}`"


def install(app: FastAPI) -> None:
    """Install the handler that passes requests on."""
    app.add_exception_handler(Elsewhere, _forward)


async def _forward(_connection: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, Elsewhere)  # registered for these only
    return error.response
