"""Previews: the listener, opened with the first link, or at the start if there are links or a domain."""

import contextlib
import threading

import structlog
from starlette.types import ASGIApp

from controller.api.preview.address import PreviewAddress
from controller.api.preview.protocol import PreviewProtocol, note_server_name
from controller.api.preview.routes import AddressHolder, PreviewLinks
from controller.api.server.first_request import FirstRequestServer
from controller.api.server.server import SocketTaken
from controller.app.core import Core
from controller.app.errors import CannotStart
from controller.app.identify import HostUsers, make_identify
from controller.kinds.common.address import parse_address
from controller.service.errors import ServiceUnavailable
from controller.service.front.previews import Previews
from controller.service.services import Services
from controller.store.sql_store import SqlStore

_STALL_SECONDS = 60.0
_SHARE = 0.5
_log = structlog.get_logger("paddock")


class PreviewListener:
    """The listener. `open` starts it once; from any thread."""

    def __init__(self, core: Core, services: Services, previews: Previews, holder: AddressHolder) -> None:
        self._core, self._services, self._previews, self._holder = core, services, previews, holder
        self._lock = threading.Lock()
        self._server: FirstRequestServer | None = None

    def open(self) -> None:
        """Start it. Raises ServiceUnavailable."""
        with self._lock:
            if self._server is not None:
                return
            settings = self._core.settings
            server = FirstRequestServer(
                self._application,
                parse_address(settings.preview_address, least_port=0),
                "preview_address",
                cert=settings.preview_cert_file,
                key=settings.preview_key_file,
                stall_seconds=_STALL_SECONDS,
                share=_SHARE,
                protocol=PreviewProtocol,
                sni_callback=note_server_name,
            )
            try:
                server.start()
            except SocketTaken as error:
                self._holder.refusal = f"previews are not served: {error}"
                raise ServiceUnavailable(self._holder.refusal) from error
            self._server = server
            scheme = "https" if settings.preview_cert_file or settings.preview_domain else "http"
            domain = settings.preview_domain or f"localhost:{server.port}"
            self._holder.address = PreviewAddress(scheme, domain)
            _log.info("previews served", address=server.url, domain=domain)

    def close(self) -> None:
        """Stop it, if it runs."""
        if self._server is not None:
            self._server.stop()

    def _application(self) -> ASGIApp:
        # With the first connection, as the listener itself.
        from controller.api.preview.app import PreviewApp
        from controller.api.preview.proxies import Proxies
        from controller.api.preview.traffic import Traffic

        services, core = self._services, self._core
        return PreviewApp(
            self._previews,
            services.forward,
            services.sandbox_streams,
            self._holder.get(),
            proxies=Proxies(core.settings.trusted_networks()),
            traffic=Traffic(core.meter),
        )


def make_previews(core: Core, services: Services, store: SqlStore) -> PreviewLinks | None:
    """Return the links of this host's sandboxes; None on a daemon that keeps no host. Raises CannotStart."""
    settings = core.settings
    if not settings.is_host or not settings.preview_address:
        return None
    previews = Previews(
        objects=services.objects,
        registry=services.registry,
        tokens=store.tokens,
        recorder=services.recorder,
        clock=core.clock,
        folder=settings.state_dir / "previews",
        grants_of=HostUsers(make_identify(core, store)).caller,
        meter=core.meter,
    )
    holder = AddressHolder()
    holder.is_public = bool(settings.preview_domain)
    listener = PreviewListener(core, services, previews, holder)
    previews.opened = listener.open
    core.undo.callback(listener.close)
    if settings.preview_domain:
        try:
            listener.open()
        except ServiceUnavailable as error:
            raise CannotStart(str(error)) from error
    elif previews.has_links:
        with contextlib.suppress(ServiceUnavailable):  # the next link says so
            listener.open()
    return PreviewLinks(previews, holder)
