"""The loop's tests run on SQLite; what depends on SQL says `both_stores`, and runs on PostgreSQL, too.

Each statement that the loop has carried out is proven on both by the stores' contracts (tests/contract) and by those.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_backends import Backend, make_backend


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(getattr(request, "param", "sqlite"), tmp_path) as created:
        yield created
