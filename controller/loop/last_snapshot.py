"""Snapshot of the last reconcile pass, for all its readers; and the gateway's state, for the next pass."""

from controller.kinds.observed.models import NO_GATEWAY, GatewayView
from controller.kinds.observed.observed import Container
from controller.kinds.planning.snapshot import Snapshot


class LastSnapshot:
    """Holds one snapshot: the reconcile pass replaces it, any thread reads it. None before the first pass."""

    def __init__(self) -> None:
        self.now: Snapshot | None = None

    def __call__(self) -> Snapshot | None:
        return self.now

    def alive(self) -> tuple[Container, ...]:
        """Return the containers that ran at that pass."""
        return tuple(self.now.alive()) if self.now else ()


class LastGateway:
    """Holds the state of the model gateway: its supervisor replaces it, each pass reads it."""

    def __init__(self) -> None:
        self.now: GatewayView = NO_GATEWAY

    def __call__(self) -> GatewayView:
        return self.now
