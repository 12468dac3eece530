"""The internals of uvicorn that the API overrides or reaches into. Review each one that a release changes.

pyproject.toml allows only the releases of one minor version. To take the next: widen the range there, `make lock`, and
for each name that fails here compare uvicorn's code with the module of ours that is named beside it, then note the new
digest (the failure shows it).
"""

import hashlib
import inspect
import logging
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from controller.api.server.peer_credentials import PeerProtocol
from controller.api.server.request_deadline import RequestDeadlineProtocol
from controller.api.server.server import WebSocketProtocol, _not_the_denial, _Server

# What is overridden, or whose attributes are read or set; the class of ours that does; the source's digest.
INTERNALS = [
    (
        H11Protocol.__init__,
        RequestDeadlineProtocol,
        "ad1ed8e837b2db8d",
    ),  # app, app_state, connections, conn, cycle, flow, loop, scope, transport
    (H11Protocol.connection_made, PeerProtocol, "6efb565ff3d36b91"),
    (H11Protocol.connection_lost, RequestDeadlineProtocol, "dbb688fa2b386000"),
    (H11Protocol.data_received, RequestDeadlineProtocol, "e03b145518ca44aa"),
    (H11Protocol.handle_events, RequestDeadlineProtocol, "e63a9d1492e3efe7"),  # where a cycle begins, and its body ends
    (H11Protocol.handle_websocket_upgrade, RequestDeadlineProtocol, "6f42a029e35aed5c"),
    (
        RequestResponseCycle.__init__,
        RequestDeadlineProtocol,
        "d245415af679f8ad",
    ),  # disconnected, message_event, more_body, response_*
    (
        RequestResponseCycle.receive,
        RequestDeadlineProtocol,
        "2d138e9944fff369",
    ),  # lets the reader of a body go when disconnected
    (
        H11Protocol.send_400_response,
        RequestDeadlineProtocol,
        "56937b748fc59d92",
    ),  # called for what h11 refuses, and for heads too large
    (FlowControl.pause_reading, RequestDeadlineProtocol, "7c27388bb984e9ed"),  # read_paused
    (uvicorn.Server.main_loop, _Server, "afccb353a119333f"),
    (uvicorn.Server.on_tick, _Server, "60ea49b06ccf68c1"),
    (uvicorn.Server.run, _Server, "239e0133d4307e38"),  # on a thread, with sockets
    (uvicorn.Server.startup, _Server, "2aa1d70a244bfcf2"),  # started; the sockets it takes
    (uvicorn.Server.shutdown, _Server, "9b33c50562992b1e"),  # should_exit
    (WebSocketsSansIOProtocol.shutdown, WebSocketProtocol, "e8ace796ada616b7"),
]


def digest(what: Any) -> str:
    return hashlib.sha256(inspect.getsource(what).encode()).hexdigest()[:16]


@pytest.mark.parametrize(("internal", "ours", "read"), INTERNALS, ids=lambda each: getattr(each, "__qualname__", ""))
def test_overridden_internals_are_unchanged(internal: Any, ours: type, read: str) -> None:
    where = f"{ours.__module__}.{ours.__name__}"
    assert digest(internal) == read, f"uvicorn {uvicorn.__version__} changed {internal.__qualname__}: look at {where}"


@pytest.mark.parametrize("ours", [RequestDeadlineProtocol, PeerProtocol, _Server, WebSocketProtocol])
def test_every_override_is_named(ours: type) -> None:
    kind_classes = [entry for entry in ours.__mro__ if entry.__module__.startswith("uvicorn.")]
    overridden = {
        name for name in vars(ours) if any(inspect.isfunction(vars(class_).get(name)) for class_ in kind_classes)
    }
    names = {internal.__name__ for internal, _, _ in INTERNALS}
    assert overridden <= names


def test_log_messages_filtered_by_text_still_exist() -> None:
    """Only their text identifies them: uvicorn gives them no name."""
    for module, message in (
        (inspect.getmodule(WebSocketsSansIOProtocol), "ASGI callable returned without completing handshake."),
        (inspect.getmodule(H11Protocol), "ASGI callable returned without completing response."),
    ):
        assert message in inspect.getsource(module)
        assert not _not_the_denial(logging.LogRecord("uvicorn.error", 40, "", 0, message, (), None))
