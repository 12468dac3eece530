"""The listener for clients of E2B. Its package is imported at the first connection."""

from functools import partial

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from controller.api.common.byte_budget import ByteBudget
from controller.api.common.errors import refuse
from controller.api.common.trace import Trace
from controller.api.middleware.limits import BODIES_BYTES, BodyLimit, RequestMetrics
from controller.api.middleware.load import LoadLimit, LoadLimits
from controller.api.middleware.token_expiry import TokenExpiry
from controller.api.server.first_request import FirstRequestServer
from controller.api.server.peer_credentials import CONNECTION, HOST_NAMES
from controller.api.server.server import SocketTaken
from controller.api.server.stalled_clients import ClientTransport
from controller.api.streams.proxy import ProgramRequest, ProxiedResponse, relay_websocket
from controller.app.core import Core
from controller.app.errors import CannotStart
from controller.kinds.common.address import parse_address
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.access.authenticate import Identify
from controller.service.errors import ServiceError
from controller.service.fleet.locations import Locations
from controller.service.objects.objects import Objects
from controller.service.services import Services
from controller.store.sql_store import SqlStore

_SECRETS = (b"x-api-key", b"x-access-token", b"e2b-traffic-access-token", b"e2b-sandbox-id", b"e2b-sandbox-port")
_LABEL, _ON_TIMEOUT = "paddock.e2b", "paddock.e2b/on-timeout"  # e2b.metadata's, which is not imported for them
_STREAMED_PATHS = ("/files", "/process.Process/StreamInput")
MOST_BODY_BYTES = 1 << 30  # each call has a bound of its own, in the words of its form
_OUTPUT_PATHS = ("/process.Process/Start", "/process.Process/Connect", "/execute")
_log = structlog.get_logger("paddock")


def start_e2b(core: Core, services: Services, store: SqlStore, load: LoadLimits, locations: Locations | None) -> str:
    """Start the listener, and return its URL; "": there is none. Raises CannotStart.

    Another program may have the port that nobody chose: then there is none, and the log says so.
    """
    settings = core.settings
    if not settings.e2b_address or "api" not in settings.roles or not settings.is_host:
        return ""
    cert, key = settings.e2b_tls_cert_file, settings.e2b_tls_key_file
    server = FirstRequestServer(
        lambda: _application(core, services, store, load=load, locations=locations, server=server),
        parse_address(settings.e2b_address, least_port=0),
        "e2b_address",
        cert=cert,
        key=key,
        stall_seconds=settings.transfer_stall_seconds,
        share=settings.caller_share,
        is_needed=lambda: (settings.state_dir / "e2b").exists() and has_time_outs(services.objects),
    )
    try:
        server.start()
    except SocketTaken as error:
        if "e2b_address" in settings.model_fields_set:
            raise CannotStart(str(error)) from error
        _log.warning("no listener for clients of E2B; set e2b_address to another address, or to none", why=str(error))
        return ""
    core.undo.callback(server.stop)
    return server.url


def has_time_outs(objects: Objects) -> bool:
    """Return True if a stored sandbox is to be paused at a time, which this protocol's package does."""
    stored = objects.list(SANDBOX, labels=f"{_LABEL}=true").objects
    return any(obj.annotations.get(_ON_TIMEOUT, "kill") != "kill" for obj in stored)


def _application(
    core: Core,
    services: Services,
    store: SqlStore,
    load: LoadLimits,
    locations: Locations | None,
    server: FirstRequestServer,
) -> ASGIApp:
    """Import the package, and build the application."""
    from controller.e2b.app import E2BApp
    from controller.e2b.parts import Parts, Rules

    settings = core.settings
    domain = settings.e2b_domain or f"localhost:{server.port}"
    identify = Identify(tokens=store.tokens, clock=core.clock, names=HOST_NAMES, owners=frozenset())
    host = settings.host_name if locations is not None else ""
    rules = Rules(domain, settings.e2b_templates, settings.state_dir / "e2b", host)
    parts = Parts(
        services, identify, store.tokens, core.clock, rules, locations.is_here if locations is not None else None
    )
    limited = partial(_limited, services, load, ByteBudget(BODIES_BYTES, load.share))
    e2b = E2BApp(parts, partial(_pass_on, services), limited)
    core.undo.callback(e2b.close)
    app = Trace(RequestMetrics(e2b, core.meter))
    return _Pauses(app, services.sandbox_streams.rules.pause_seconds)


class _Pauses:
    """Lets a client pause in reading a command's output, as over the API; in a transfer it may not."""

    def __init__(self, app: ASGIApp, pause_seconds: float) -> None:
        self._app, self._pause_seconds = app, pause_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        link: ClientTransport | None = scope.get("state", {}).get(CONNECTION)
        if link is not None:
            link.pause_seconds = self._pause_seconds if scope["path"] in _OUTPUT_PATHS else 0.0
        await self._app(scope, receive, send)


async def _pass_on(
    services: Services, port: int, obj: StoredObject, scope: Scope, receive: Receive, send: Send
) -> None:
    """Pass a request or a WebSocket on to a program's port, without the caller's tokens."""
    query = scope.get("query_string", b"")
    target = scope["raw_path"] + (b"?" + query if query else b"")
    headers = [(name, value) for name, value in scope["headers"] if name not in _SECRETS]
    secure = scope["scheme"] in ("https", "wss")
    request = ProgramRequest(
        scope.get("method", "GET"),
        port,
        prefix="",
        target=target,
        headers=headers,
        scheme="https" if secure else "http",
    )
    try:
        opened = await run_in_threadpool(services.forward.open, SANDBOX, obj.namespace, obj.name, port)
    except ServiceError as error:
        await refuse(error, scope, receive, send)
        return
    if scope["type"] == "websocket":
        await relay_websocket(WebSocket(scope, receive, send), request, opened)
    else:
        await ProxiedResponse(request, opened)(scope, receive, send)


def _limited(
    services: Services, load: LoadLimits, budget: ByteBudget, app: ASGIApp, *, streams: bool = False
) -> ASGIApp:
    """Return the application with the limits of the API's listeners, for the caller of a request."""
    bounded = app if streams else _Bodies(app, budget, load.share)
    return TokenExpiry(LoadLimit(bounded, load), services.token_expirations)


class _Bodies:
    """Bounds bodies, alone and together, but for those that are passed on piece by piece."""

    def __init__(self, app: ASGIApp, budget: ByteBudget, share: float) -> None:
        self._app, self._bounded = app, BodyLimit(app, MOST_BODY_BYTES, budget, share)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app if scope["path"] in _STREAMED_PATHS else self._bounded
        await app(scope, receive, send)
