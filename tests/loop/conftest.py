"""The loop's tests run on SQLite; what depends on SQL says `both_stores`, and runs on PostgreSQL, too.

Each statement that the loop has carried out is proven on both by the stores' contracts (tests/contract) and by those.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_worlds import World, make_world


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with make_world(getattr(request, "param", "sqlite"), tmp_path) as created:
        yield created
