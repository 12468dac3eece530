"""Every source, by the name of its kind."""

from collections.abc import Mapping

from controller.ports import Engine, Store
from controller.service.sources import Source
from controller.service.sources.event import EventSource
from controller.service.sources.host import HostSource
from controller.service.sources.instance import InstanceSource
from controller.service.sources.securityprofile import ProfileSource


def make_sources(store: Store, engine: Engine) -> Mapping[str, Source]:
    """Makes them; does no work. Of the engine only the newest view is read."""
    return {
        "Event": EventSource(store),
        "Host": HostSource(store, engine.observe),
        "Instance": InstanceSource(store, engine.observe),
        "SecurityProfile": ProfileSource(),
    }
