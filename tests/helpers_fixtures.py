"""Fixtures that the tests of service, api and cli share; their conftest files take them from here."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers_api import World, make_world
from tests.plain_logs import configure_plain_logs


@pytest.fixture
def quiet() -> Iterator[None]:
    """No log lines: they go to stdout, where a command's results are."""
    configure_plain_logs(level=logging.CRITICAL)
    yield
    configure_plain_logs()


@pytest.fixture
def world(tmp_path: Path, quiet: None) -> Iterator[World]:
    """Everything behind the listeners, with an empty store."""
    created = make_world(tmp_path)
    yield created
    created.services.watches.close()
    created.files.close()
    created.store.close()


@pytest.fixture
def served(world: World) -> Iterator[World]:
    """The same, with the API served on `world.socket`."""
    server = world.server()
    server.start()
    yield world
    server.stop()


@pytest.fixture
def running_world(served: World) -> World:
    """The served world with a running sandbox."""
    served.apply()
    served.view.show(served.sandbox())
    return served
