"""The loop's tests run on both stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_worlds import BACKENDS, World, make_world


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with make_world(request.param, tmp_path) as made:
        yield made
