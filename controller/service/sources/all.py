"""Every source, by the name of its kind."""

from collections.abc import Callable, Mapping

from controller.kinds.observed.canary import UNWATCHED, CanaryResult
from controller.kinds.observed.pressure import NONE, Pressure
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.kinds.planning.snapshot import Snapshot
from controller.policy.levels.levels import Policy
from controller.ports import Clock, Engine, Store, Volumes
from controller.ports.fleet import NOT_REACHED, SINGLE, Fleet, Reached
from controller.service.sources import Source
from controller.service.sources.event import EventSource
from controller.service.sources.host import HostSource
from controller.service.sources.instance import InstanceSource
from controller.service.sources.securityprofile import ProfileSource
from controller.service.sources.volume import VolumeSource


def make_sources(
    store: Store,
    engine: Engine,
    snapshot: Callable[[], Snapshot | None],
    clock: Clock,
    volumes: Volumes,
    policy: Policy | None = None,
    place: Fleet = SINGLE,
    reached: Reached = NOT_REACHED,
) -> Mapping[str, Source]:
    """Return the sources by kind; starts nothing. They read the last observation and `snapshot`.

    `place` is this host among those of the store; others reach its daemon at `address`.
    """

    def pressure() -> Pressure:
        last = snapshot()
        return last.host.pressure if last is not None else NONE

    def canary() -> CanaryResult:
        last = snapshot()
        return last.host.canary if last is not None else UNWATCHED

    def hibernation() -> HibernationAbility:
        last = snapshot()
        return last.host.hibernation if last is not None else UNKNOWN_ABILITY

    host = HostSource(
        store,
        engine.observe,
        pressure,
        canary,
        place=place,
        reached=reached,
        now=clock.now,
        hibernation=hibernation,
    )
    return {
        "Event": EventSource(store),
        "Host": host,
        "Instance": InstanceSource(store, engine.observe, place),
        "SecurityProfile": ProfileSource(policy),
        "Volume": VolumeSource(store, volumes, clock, place),
    }
