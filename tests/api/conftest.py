"""The fixtures of this folder."""

from tests.helpers_fixtures import quiet, served, world

__all__ = ["quiet", "served", "world"]
