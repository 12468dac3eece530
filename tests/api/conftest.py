"""The fixtures of this folder."""

from tests.helpers_fixtures import box, quiet, served, world

__all__ = ["box", "quiet", "served", "world"]
