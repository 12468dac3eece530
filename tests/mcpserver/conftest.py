"""The fixtures of this folder."""

from collections.abc import Iterator

import pytest

from tests.helpers_api import ApiStack
from tests.helpers_fixtures import api, quiet
from tests.mcpserver.clients import Mcp, talking

__all__ = ["api", "quiet"]


@pytest.fixture
def running(api: ApiStack) -> ApiStack:
    """An API with one running sandbox."""
    api.apply()
    api.view.show(api.sandbox())
    api.set_ready()
    return api


@pytest.fixture
def mcp(running: ApiStack) -> Iterator[Mcp]:
    """Clients of that API."""
    with talking(running) as created:
        yield created
