"""What every test may use. Tests that need an engine or PostgreSQL run only where `make test` provides them."""

import os
import shutil
import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says nothing here: the machine is shared, and databases and engines take their time.
settings.register_profile("paddock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("paddock")

# What nohup or a shell's background had this process ignore, everything that it starts would ignore, too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

_NEEDS = {
    "docker": "PADDOCK_TEST_DOCKER",
    "postgres": "PADDOCK_TEST_POSTGRES",
    "bench": "PADDOCK_BENCH",
    "drill": "PADDOCK_DRILLS",
    "soak": "PADDOCK_SOAK",
    "compose": "PADDOCK_TEST_COMPOSE",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect (never skip) what this run has no engine or server for, so that plain `pytest` is green and quick."""
    kept, left = [], []
    prometheus = shutil.which("promtool") and shutil.which("prometheus")
    for item in items:
        missing = any(item.get_closest_marker(mark) and not os.environ.get(need) for mark, need in _NEEDS.items())
        missing = missing or bool(item.get_closest_marker("prometheus") and not prometheus)
        (left if missing else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


class HandClock:
    """A clock that only moves when told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
