"""The fixtures of this folder."""

from tests.helpers_fixtures import api, quiet, served

__all__ = ["api", "quiet", "served"]
