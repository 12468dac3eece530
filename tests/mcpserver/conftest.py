"""The fixtures of this folder."""

from tests.helpers_fixtures import quiet, world

__all__ = ["quiet", "world"]
