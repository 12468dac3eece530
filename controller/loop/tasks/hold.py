"""Hold: what is started elsewhere if its host is lost runs here only while this daemon reaches the store."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.processes.keeper import Keeper

# After the last renewal of the host's lease began. The leader waits longer before it binds them anew (placements.py).
HOLD_SECONDS = 12.5
_PERIOD_SECONDS = 1.0
_log = structlog.get_logger("paddock.hold")


class Freezer(Protocol):
    """What freezes containers when their time is over, whatever happens to this process."""

    def hold(self, deadline: float, containers: Iterable[tuple[str, int]]) -> None: ...


class HostHold(Keeper):
    """Renews the deadline of what is held. What is held when it stops is frozen in time, unless another renews."""

    name, log_name, first_seconds = "hold", "paddock.hold", _PERIOD_SECONDS

    def __init__(
        self,
        freezer: Freezer,
        renewed: Callable[[], float],
        snapshot: Callable[[], Snapshot | None],
        observe: Callable[[], Observation],
    ) -> None:
        """`renewed` is when the last renewal of the host's lease began (CLOCK_BOOTTIME; 0: there was none yet).

        `observe` returns what runs now: passes end while the store is away.
        """
        self._freezer, self._renewed, self._snapshot, self._observe = freezer, renewed, snapshot, observe
        self._held: list[Container] = []
        self._failure = ""
        super().__init__()

    def step(self) -> float | None:
        """Renew once."""
        self.renew()
        return _PERIOD_SECONDS

    def renew(self) -> None:
        """Write the deadline, for the containers that are held now."""
        snapshot = self._snapshot()
        renewed = self._renewed()
        observed = self._observe()
        if snapshot is None or not renewed:
            return
        if not observed.blind:  # else it runs as it did
            self._held = containers_at_risk(snapshot.desired.sandboxes, observed.containers)
        try:
            self._freezer.hold(renewed + HOLD_SECONDS, [(container.id, container.pid) for container in self._held])
            self._failure = ""
        except OSError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                _log.warning(
                    "what may be started elsewhere is frozen soon: its time can't be written", reason=str(error)
                )


def containers_at_risk(
    sandboxes: Mapping[str, Sandbox], containers: Mapping[str, Iterable[Container]]
) -> list[Container]:
    """Return the live containers of the sandboxes that are started elsewhere if this host is lost."""
    return [
        container
        for uid, sandbox in sandboxes.items()
        if sandbox.spec is not None and sandbox.spec.on_host_loss == "Recreate"
        for container in containers.get(uid, ())
        if container.state in (State.RUNNING, State.PAUSED) and container.pid
    ]
