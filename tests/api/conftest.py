"""The fixtures of this folder."""

from tests.helpers_fixtures import api, quiet, running_api, served

__all__ = ["api", "quiet", "running_api", "served"]
