"""The ASGI application: routes, error bodies, middleware. Building it starts nothing."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache

from fastapi import Depends, FastAPI
from starlette.datastructures import State
from starlette.types import ASGIApp

from controller.api.common import errors, openapi
from controller.api.common.answer import AnswerLimit
from controller.api.common.query_names import check_query
from controller.api.common.trace import Trace
from controller.api.fleet.forwarding import Forwarding
from controller.api.fleet.forwarding import install as install_forwarding
from controller.api.kubernetes import routes as kubernetes
from controller.api.kubernetes.alias import PodAlias
from controller.api.middleware.authenticate import Authenticate, Authenticator, in_process
from controller.api.middleware.authorise import authorise
from controller.api.middleware.limits import BodyLimit, BodyType, RequestMetrics
from controller.api.middleware.load import LoadLimit, LoadLimits
from controller.api.middleware.token_expiry import TokenExpiry
from controller.api.panel.serve import Panel
from controller.api.preview import routes as preview_routes
from controller.api.preview.routes import PreviewLinks
from controller.api.routes import (
    audit,
    auth,
    backup,
    discovery,
    doctor,
    health,
    images,
    mcp,
    model_use,
    secrets,
    workflows,
)
from controller.api.routes.objects import apply, diff, kinds, patch, read_only, why
from controller.api.routes.sandbox import (
    agent,
    attest,
    contexts,
    detached,
    exec,  # noqa: A004 - the module
    files,
    inspect,
    logs,
    port_forward,
    proxy,
    snapshots,
    usage,
)
from controller.api.ssh import routes as ssh_routes
from controller.api.streams.watch import LONGEST_SECONDS, WatchStreams
from controller.kinds.observed.doctor import Finding
from controller.kinds.registry import Registry
from controller.ports import Meter
from controller.service.front.ssh import NoSsh, SshFront
from controller.service.services import Services
from controller.version import VERSION

_OF_SANDBOXES = (
    agent,
    contexts,
    snapshots,
    files,
    logs,
    port_forward,
    proxy,
    ssh_routes,
    preview_routes,
    detached,
    inspect,
    why,
    attest,
    usage,
)

# Readiness checks by name, each with its current problem ("" for none).
Ready = Callable[[], Sequence[tuple[str, str]]]
Doctor = Callable[[], Sequence[Finding]]


def create_app(
    services: Services,
    *,
    ready: Ready,
    meter: Meter,
    longest_watch_seconds: float = LONGEST_SECONDS,
    who: Authenticator = in_process,
    load: LoadLimits = LoadLimits(),
    mcp_app: ASGIApp | None = None,
    examine: Doctor = tuple,
    forwarding: Forwarding | None = None,
    e2b_url: str = "",
    ssh_front: SshFront | None = None,
    previews: PreviewLinks | None = None,
) -> FastAPI:
    """Return the ASGI application over these use-cases, with routes for each kind of their registry.

    `ready` serves /readyz, `examine` the findings of `paddock doctor`. `who` authenticates each request; every listener
    sets it. By default every caller is Paddock itself. `mcp_app` answers at /mcp. `e2b_url` is that of the listener for
    clients of E2B. `ssh_front` serves SSH connections, `previews` links to ports. `forwarding` passes on requests for
    sandboxes of other hosts, if there are any.
    """
    app = copy(routed_app(services.registry, speaks_mcp=mcp_app is not None))
    app.state, app.user_middleware = State(), []
    app.state.services, app.state.ready, app.state.parsing = services, ready, services.parsing
    app.state.authorise = authorise(services.registry)
    app.state.doctor = examine
    app.state.forwarding = forwarding
    app.state.file_requests = files.FileRequests(services.files)
    app.state.watch_streams = WatchStreams(services.watches, longest_seconds=longest_watch_seconds)
    app.state.port_forwarding = port_forward.PortForwarding()
    app.state.mcp = mcp_app
    app.state.e2b_url = e2b_url
    app.state.ssh = ssh_front or NoSsh()
    app.state.previews = previews
    # The last one added is outermost: refused requests are counted as well.
    app.add_middleware(BodyType)
    app.add_middleware(BodyLimit, share=load.share)
    app.add_middleware(AnswerLimit, share=load.share)
    app.add_middleware(TokenExpiry, token_expirations=services.token_expirations)
    app.add_middleware(LoadLimit, limits=load)
    app.add_middleware(Authenticate, who=who, recorder=services.recorder)
    app.add_middleware(RequestMetrics, meter=meter)
    app.add_middleware(Panel, kinds=services.registry)
    app.add_middleware(PodAlias)
    app.add_middleware(Trace)
    return app


@lru_cache(maxsize=4)
def routed_app(registry: Registry, *, speaks_mcp: bool) -> FastAPI:
    """Return an application that has all routes and no services: the listeners' own are copies of it.

    The first request of an application takes a quarter of a second to work out its routes, and the first for its
    description a second. Copies share both.
    """
    app = FastAPI(
        title="Paddock",
        version=VERSION,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(authorise(registry)), Depends(check_query)],
        separate_input_output_schemas=False,
    )
    errors.install(app)
    install_forwarding(app)
    _include_routes(app, registry, speaks_mcp)
    openapi.install(app, registry)
    return app


def _include_routes(app: FastAPI, registry: Registry, speaks_mcp: bool) -> None:
    """Add the routes. They are matched in order, one by one: those that are called often are the first."""
    if speaks_mcp:
        app.include_router(mcp.routes)
    sandbox = [kind for kind in registry if kind.name == "Sandbox"]
    for kind in sandbox:
        for routes in (exec.routes, kinds.router(kind), apply.routes, *(module.routes for module in _OF_SANDBOXES)):
            app.include_router(routes)
    for module in (
        health,
        discovery,
        auth,
        audit,
        backup,
        *(() if sandbox else (apply,)),
        diff,
        images,
        doctor,
        secrets,
    ):
        app.include_router(module.routes)
    app.include_router(kinds.groups)
    app.include_router(kubernetes.routes)
    app.include_router(kinds.discovery)
    for kind in registry:
        if kind.read_only:
            if kind.patchable:
                app.include_router(patch.router(kind))
            app.include_router(read_only.router(kind))
            continue
        if kind not in sandbox:
            app.include_router(kinds.router(kind))
        app.include_router(patch.router(kind))
        if kind.name == "WorkflowRun":
            app.include_router(workflows.routes)
        if kind.name == "SandboxSnapshot":
            app.include_router(snapshots.archives)
        if kind.name == "Provider":
            app.include_router(model_use.routes)
