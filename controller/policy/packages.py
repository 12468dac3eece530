"""The level `build` with the package hosts of this host. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from controller.policy.levels import BUILT_IN, Level

BUILD = "build"


def with_packages(hosts: Collection[str], levels: Mapping[str, Level] = BUILT_IN) -> Mapping[str, Level]:
    """The levels; a sandbox of `build` reaches these names and no others."""
    return {**levels, BUILD: replace(levels[BUILD], allowed_hosts=tuple(sorted(set(hosts))))}
