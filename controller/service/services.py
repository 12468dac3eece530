"""All use-cases over one set of ports: what the doors are given."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from controller.kinds.registry import Registry
from controller.ports import Clock, Engine, Store, Streams, Wake
from controller.service.apply import Admit, Apply
from controller.service.objects import Objects
from controller.service.streams import IntoBox


@dataclass(frozen=True, slots=True)
class Services:
    """The use-cases by what they are about."""

    registry: Registry
    apply: Apply
    objects: Objects
    into_box: IntoBox


def make_services(
    *,
    registry: Registry,
    store: Store,
    engine: Engine,
    streams: Streams,
    admit: Admit,
    clock: Clock,
    wake: Wake,
    new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> Services:
    """Build the use-cases. Does no work; `wake` is called after each write that the loop should see."""
    objects = Objects(store=store, wake=wake, clock=clock)
    return Services(
        registry=registry,
        apply=Apply(store=store, registry=registry, admit=admit, wake=wake, clock=clock, new_uid=new_uid),
        objects=objects,
        into_box=IntoBox(objects=objects, engine=engine, streams=streams),
    )
