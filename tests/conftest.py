"""Fixtures for every test. Tests that need an engine or PostgreSQL run only where `make test` provides them."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import tests.examples  # noqa: F401 - before Hypothesis loads the profile that the command line names
from tests.plain_logs import configure_plain_logs

# What nohup or a shell's background had this process ignore, everything that it starts would ignore, too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from tests.lab.internet import Lab

configure_plain_logs()

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
    "frontdoor": "PADDOCK_TEST_FRONTDOOR",
    "first_hour": "PADDOCK_TEST_FIRST_HOUR",
    "mcp": "PADDOCK_TEST_MCP",
    "e2b": "PADDOCK_TEST_E2B",
    "kubectl": "PADDOCK_TEST_KUBECTL",
    "panel": "PADDOCK_TEST_PANEL",
    "journey": "PADDOCK_TEST_JOURNEY",
    "fleet": "PADDOCK_TEST_FLEET",
}
# Figures, failure drills and long runs are no tests: only their own lanes load them.
collect_ignore = [
    folder
    for folder, lane in (("bench", "PADDOCK_BENCH"), ("drills", "PADDOCK_DRILLS"), ("soak", "PADDOCK_SOAK"))
    if not os.environ.get(lane)
]
# Tests below these paths are run one after the other, by one worker: an engine has each subnet once, a lab is made for
# several modules, and what a module has made for all its tests is made once. With one lab for all, the run would wait
# for it in the end.
_ONE_BY_ONE = {
    "tests/architecture/": "trees",
    "tests/contract/test_networks_contract.py": "subnets",
    "tests/security/test_credentials.py": "first lab",
    "tests/security/test_levels.py": "first lab",
    "tests/mcp/test_levels.py": "first lab",
    "tests/mcp/test_packages.py": "first lab",
    "tests/security/test_peers.py": "second lab",
    "tests/security/test_resolvers.py": "second lab",
    "tests/security/test_sealed.py": "second lab",
    "tests/e2e/test_mcp_packages.py": "second lab",
    "tests/e2e/test_prometheus.py": "second lab",
    "tests/docs/test_docs.py::test_the_glossary_has_every_reason": "trees",
    "tests/metrics/test_callers.py": "trees",
}
_BY_MODULE = (
    "tests/agent/test_container.py",
    "tests/api/test_fuzz.py",
    "tests/contract/test_engine_unchanged.py",
    "tests/contract/test_files_contract.py",
    "tests/contract/test_images_contract.py",
    "tests/contract/test_totals_contract.py",
    "tests/e2e/",
    "tests/engine/test_engine_exec.py",
    "tests/engine/test_engine_hanging.py",
    "tests/engine/test_engine_pause_guard.py",
    "tests/engine/test_engine_probes.py",
    "tests/engine/test_engine_restart.py",
    "tests/engine/test_engine_seccomp.py",
    "tests/engine/test_engine_witness.py",
    "tests/fleet/",
    "tests/gateway/",
    "tests/e2b_clients/",
    "tests/mcp/",
    "tests/metrics/test_scrape_access.py",
    "tests/panel/",
    "tests/sdk/",
    "tests/security/",
    "tests/service/test_pages.py",
)
# Left out of `make quick`: what tries every step, and what starts many programs.
_NOT_QUICK = (
    "tests/cli/test_commands_completion.py",
    "tests/cli/test_commands_doctor.py",
    "tests/contract/test_claims_contract.py",
    "tests/loop/test_crashes.py",
    "tests/loop/test_garbage.py::test_a_daemon_killed_at_any_step",
    "tests/loop/test_reconcile_pass.py::test_a_daemon_killed_at_any_step",
)
# Modules that take longest, and wait most of that time. The first of them begin first, the last in the middle of the
# run: others compute meanwhile, and nobody waits for them in the end.
_LAST_BEGINS = 0.6
_FIRST = (
    "tests/security/",
    "tests/e2e/test_prometheus.py",
    "tests/e2e/test_mcp_packages.py",
    "tests/e2e/test_mcpserver.py",
    "tests/e2e/test_models.py",
    "tests/engine/test_engine_hanging.py",
    "tests/mcp/",
    "tests/panel/",
    "tests/e2e/",
    "tests/sdk/",
    "tests/deploy/",
    "tests/api/test_openapi.py",
)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # nearly all that is imported and collected stays to the end


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the tests themselves from garbage collections: they are most of the objects that each would visit."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several workers, one has all of a group. Marks can't say so: xdist 3.8 writes their groups where pytest from
    9.2 on does not look."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            groups = (group for path, group in _ONE_BY_ONE.items() if nodeid.startswith(path))
            by_module = nodeid.partition("::")[0] if nodeid.startswith(_BY_MODULE) else nodeid
            return next(groups, by_module)

    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # they come in order already
    return ByGroup(config, log)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort tests for several workers: those that wait for the engine, the longest first, among those that compute."""
    first = sorted((entry for entry in items if entry.nodeid.startswith(_FIRST)), key=_place)
    modules = {path: at for at, path in enumerate(dict.fromkeys(entry.path for entry in first))}
    placed = [(_LAST_BEGINS * modules[entry.path] / len(modules), 0, at, entry) for at, entry in enumerate(first)]
    waiting, occupied = [], []
    for single in items:
        if single.path not in modules:
            (waiting if single.get_closest_marker("docker") else occupied).append(single)
    placed += [(at / len(group), 1, at, entry) for group in (waiting, occupied) for at, entry in enumerate(group)]
    return [entry for *_, entry in sorted(placed, key=lambda placed: placed[:3])]


def _place(item: pytest.Item) -> int:
    return next(at for at, path in enumerate(_FIRST) if item.nodeid.startswith(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect (never skip) what this run has no engine or server for, so that plain `pytest` is green and quick."""
    stored, remaining = [], []
    prometheus = shutil.which("promtool") and shutil.which("prometheus")
    out: tuple[str, ...] = _NOT_QUICK if os.environ.get("PADDOCK_TEST_QUICK") else ()
    if os.environ.get("PADDOCK_TEST_FOREIGN"):
        from tests.foreign import LEFT_OUT

        out += tuple(LEFT_OUT)
    for item in items:
        missing = any(item.get_closest_marker(mark) and not os.environ.get(need) for mark, need in _NEEDS.items())
        missing = missing or bool(item.get_closest_marker("prometheus") and not prometheus)
        (remaining if missing or item.nodeid.startswith(out) else stored).append(item)
    if remaining:
        config.hook.pytest_deselected(items=remaining)
    items[:] = in_order(stored) if hasattr(config, "workerinput") else stored


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Function) -> None:
    """Make anew what the module had made, such as a daemon, before a second run: the first left it half changed."""
    if getattr(item, "execution_count", 1) > 1:
        for name2fixturedef in item._fixtureinfo.name2fixturedefs.values():
            for fixture_def in name2fixturedef:
                if fixture_def.scope == "module":
                    fixture_def.finish(item._request)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why a test had to be run again: its first failure tells more than its second."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first run of {report.nodeid}")
        terminalreporter.line(report.longreprtext)


@pytest.fixture(scope="session")
def shared_lab() -> "Iterator[Lab]":
    """Start the lab of this worker's modules that need one; `begin()` has it as new.

    Its engine and images take longer to come up than most of their tests.
    """
    from tests.lab.internet import lab

    with lab() as shared:
        yield shared


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
