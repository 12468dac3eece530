"""Every metric that this version exports, by name. Rules, dashboards and tests are checked against it."""

from collections.abc import Mapping
from types import MappingProxyType

from controller.metrics.catalogue import (
    agents,
    api,
    containers,
    engine,
    host,
    loop,
    models,
    objects,
    own,
    pools,
    quotas,
    snapshots,
    store,
)
from controller.metrics.catalogue.family import Family

METER: tuple[Family, ...] = (
    loop.FAMILIES
    + engine.FAMILIES
    + store.FAMILIES
    + api.FAMILIES
    + agents.FAMILIES
    + models.FAMILIES
    + own.FAMILIES
    + pools.CLAIMS
    + quotas.WAITING
    + snapshots.FAMILIES
)
"""Families that other packages count, observe and set through the Meter port."""

CONTAINERS: tuple[Family, ...] = containers.FAMILIES
"""Families read from the cgroups of running containers at each scrape."""

OBJECTS: tuple[Family, ...] = objects.FAMILIES
"""Families that show the objects of the last snapshot."""

POOLS: tuple[Family, ...] = pools.FAMILIES
"""Families that show the warm pools of the last snapshot."""

QUOTAS: tuple[Family, ...] = quotas.FAMILIES
"""Families of quotas and reserved amounts, from the last snapshot."""

MODELS: tuple[Family, ...] = models.SOURCES
"""Families that show providers and model servers of the last snapshot."""

HOST: tuple[Family, ...] = host.FAMILIES
"""Families of the engine and its host, from the last snapshot."""

CATALOGUE: Mapping[str, Family] = MappingProxyType(
    {family.name: family for family in METER + CONTAINERS + OBJECTS + POOLS + QUOTAS + MODELS + HOST}
)
