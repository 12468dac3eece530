"""The fixtures of this folder."""

from tests.helpers_fixtures import quiet, running_world, served, world

__all__ = ["quiet", "running_world", "served", "world"]
