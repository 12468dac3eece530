"""Scheduler `manual`: a person names each sandbox's host, in `spec.host`."""

from collections.abc import Callable, Mapping, Sequence

from controller.ports.common import Wake
from controller.ports.scheduler import (
    Availability,
    NoHost,
    Placed,
    PlacedRecord,
    Placement,
    PlacementState,
    SchedulerHost,
    Suspended,
)

_NO_HOST = "no scheduler is set up; name a host in `spec.host` (`paddock host list` shows them)"


class ManualScheduler:
    """It knows no hosts, keeps nothing, and believes what it is told."""

    def ping(self) -> str:
        return ""

    def prepare(self) -> None:
        """Nothing: a host needs nothing to be named."""

    def hosts(self) -> Sequence[SchedulerHost]:
        return ()

    def set_host(
        self, name: str, *, fit: bool, labels: Mapping[str, str], availability: Availability | None = None
    ) -> None:
        """Nothing: nobody chooses by labels."""

    def place(self, placement: Placement) -> PlacementState:
        if not placement.host:
            return NoHost(_NO_HOST)
        return Placed(placement.host) if placement.running else Suspended(placement.host)

    def pin(self, uid: str, binding: int, host: str) -> PlacementState:  # noqa: ARG002 - the port's
        return Placed(host)

    def release(self, uid: str, binding: int | None = None) -> None:
        """Nothing: nothing is kept."""

    def list(self) -> Sequence[PlacedRecord]:
        return ()

    def watch(self, wake: Wake) -> Callable[[], None]:  # noqa: ARG002 - nothing ever changes
        return lambda: None
