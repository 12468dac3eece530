"""Fixtures that the tests of service, api and cli share; their conftest files take them from here."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers_api import ApiStack, make_api
from tests.plain_logs import configure_plain_logs


@pytest.fixture
def quiet() -> Iterator[None]:
    """No log lines: they go to stdout, where a command's results are."""
    configure_plain_logs(level=logging.CRITICAL)
    yield
    configure_plain_logs()


@pytest.fixture
def api(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    """Everything behind the listeners, with an empty store."""
    created = make_api(tmp_path)
    yield created
    created.services.watches.close()
    created.files.close()
    created.store.close()


@pytest.fixture
def served(api: ApiStack) -> Iterator[ApiStack]:
    """The same, with the API served on `api.socket`."""
    server = api.server()
    server.start()
    yield api
    server.stop()


@pytest.fixture
def running_api(served: ApiStack) -> ApiStack:
    """The served API with a running sandbox."""
    served.apply()
    served.view.show(served.sandbox())
    return served
