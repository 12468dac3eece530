"""The application: routes, error bodies, limits. Built by the composition root; building it does no work."""

from collections.abc import Callable, Sequence

from fastapi import Depends, FastAPI

from controller.api import (
    apply_routes,
    attest_routes,
    audit_routes,
    auth_routes,
    backup_routes,
    box_routes,
    detached_routes,
    diff_routes,
    errors,
    exec_routes,
    file_routes,
    haul_routes,
    health_routes,
    inspect_routes,
    kind_routes,
    openapi,
    patch_routes,
    port_routes,
    read_only_routes,
    usage_routes,
    why_routes,
)
from controller.api.authenticate import Authenticate, Who, in_process
from controller.api.authorise import authorise
from controller.api.ending import Ending
from controller.api.load import LoadLimit, LoadLimits
from controller.api.middleware import BodyLimit, RequestMetrics
from controller.api.trace import Trace
from controller.api.watch_stream import LONGEST_SECONDS, WatchStreams
from controller.ports import Meter
from controller.service.services import Services
from controller.version import VERSION

# What has to work: its name, and what is wrong with it now ("" when nothing is).
Ready = Callable[[], Sequence[tuple[str, str]]]


def create_app(
    services: Services,
    *,
    ready: Ready,
    meter: Meter,
    longest_watch_seconds: float = LONGEST_SECONDS,
    who: Who = in_process,
    load: LoadLimits = LoadLimits(),
) -> FastAPI:
    """The ASGI application over these use-cases; its kinds are those of their registry. `ready` is asked by /readyz.

    `who` names the caller of each request. Every door gives one: without it, whoever calls is Paddock itself.
    """
    streams = WatchStreams(services.watches, longest_seconds=longest_watch_seconds)
    may = [Depends(authorise(services.registry, services.recorder))]
    app = FastAPI(title="Paddock", version=VERSION, openapi_url=None, redirect_slashes=False, dependencies=may)
    errors.install(app)
    app.include_router(health_routes.router(ready))
    app.include_router(auth_routes.router(services.registry, services.tokens))
    app.include_router(audit_routes.router(services.audit))
    app.include_router(backup_routes.router(services.backup))
    app.include_router(apply_routes.router(services))
    app.include_router(diff_routes.router(services))
    app.include_router(kind_routes.discovery(services))
    for kind in services.registry:
        if kind.read_only:
            app.include_router(read_only_routes.router(kind, services))
            continue
        app.include_router(kind_routes.router(kind, services, streams))
        app.include_router(patch_routes.router(kind, services))
        if kind.name == "Sandbox":
            app.include_router(box_routes.router(kind, services))
            app.include_router(port_routes.router(kind, services))
            app.include_router(exec_routes.router(kind, services))
            app.include_router(detached_routes.router(kind, services))
            app.include_router(inspect_routes.router(kind, services))
            app.include_router(file_routes.router(kind, services))
            app.include_router(haul_routes.router(kind, services))
            app.include_router(why_routes.router(kind, services))
            app.include_router(attest_routes.router(kind, services))
            app.include_router(usage_routes.router(kind, services))
    openapi.install(app, services.registry)
    # The one added last is outermost: requests that are too large are counted as well.
    app.add_middleware(BodyLimit)
    app.add_middleware(Ending, lifetimes=services.lifetimes)
    app.add_middleware(LoadLimit, limits=load)
    app.add_middleware(Authenticate, who=who, recorder=services.recorder)
    app.add_middleware(RequestMetrics, meter=meter)
    app.add_middleware(Trace)
    return app
