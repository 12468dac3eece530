"""This host among those of its store: its Host object, which its daemon stores for the others."""

from collections.abc import Callable

from controller.app.core import Core
from controller.engine.engine import DockerEngine
from controller.kinds.observed.canary import UNWATCHED
from controller.kinds.observed.pressure import NONE
from controller.kinds.observed.swap import UNKNOWN_ABILITY
from controller.loop.fleet.hosts import HOST_SECONDS, IMAGES_SECONDS, HostImages, HostReport
from controller.loop.reconcile_loop import Periodic
from controller.ports import Store
from controller.ports.fleet import NOT_REACHED, Fleet, Reached
from controller.service.sources.host import HostSource


def host_reports(
    core: Core,
    store: Store,
    engine: DockerEngine,
    place: Fleet,
    fail: Callable[[], None],
    reached: Reached = NOT_REACHED,
) -> tuple[Periodic, ...]:
    """Return the periodic report of this host; nothing for the only one. `reached`: where others reach it.

    `fail` is called if the host has another engine.
    """
    if not place.shares_store:
        return ()
    images = HostImages(engine.image_store)
    source = HostSource(
        store,
        engine.observe,
        lambda: core.last.now.host.pressure if core.last.now else NONE,
        lambda: core.last.now.host.canary if core.last.now else UNWATCHED,
        place=place,
        reached=reached,
        now=core.clock.now,
        images=images.names,
        hibernation=lambda: core.last.now.host.hibernation if core.last.now else UNKNOWN_ABILITY,
    )
    return (
        Periodic("host-images", IMAGES_SECONDS, images.observe_now),
        Periodic("host", HOST_SECONDS, HostReport(source.reported, store, core.clock, fail).report),
    )
