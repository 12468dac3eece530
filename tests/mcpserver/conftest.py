"""The fixtures of this folder."""

from collections.abc import Iterator

import pytest

from tests.helpers_api import World
from tests.helpers_fixtures import quiet, world
from tests.mcpserver.clients import Mcp, talking

__all__ = ["quiet", "world"]


@pytest.fixture
def running(world: World) -> World:
    """A world with one running sandbox."""
    world.apply()
    world.view.show(world.sandbox())
    world.set_ready()
    return world


@pytest.fixture
def mcp(running: World) -> Iterator[Mcp]:
    """Clients of that world."""
    with talking(running) as created:
        yield created
