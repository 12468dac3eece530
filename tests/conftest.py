"""What every test may use. Tests that need an engine or PostgreSQL run only where `make test` provides them."""

import os
import shutil
import signal
from typing import Any

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
    "newer": "PADDOCK_TEST_NEWER",
    "systemd": "PADDOCK_TEST_SYSTEMD",
    "images": "PADDOCK_TEST_IMAGES",
}
# Tests below these paths are run one after the other, by one worker: an engine has each subnet once, and one lab is
# enough for a small machine.
_ONE_BY_ONE = {
    "tests/contract/test_networks_contract.py": "subnets",
    "tests/security/": "lab",
    "tests/e2e/test_prometheus.py": "lab",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several workers, one has all of a group. Marks can't say so: xdist 3.8 writes their groups where pytest from
    9.2 on does not look."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            found = (group for path, group in _ONE_BY_ONE.items() if nodeid.startswith(path))
            return next(found, nodeid)

    return ByGroup(config, log) if config.getvalue("dist") == "loadgroup" else None


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
