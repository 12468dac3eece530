"""Fixtures of histories."""

import pytest

from tests.plan.history import History


@pytest.fixture
def history() -> History:
    return History()
