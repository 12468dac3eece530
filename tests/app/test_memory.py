"""Memory that the daemon has freed is the host's again."""

import contextlib
import gc
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from controller.app.memory import without_collection, without_importing

BURSTS = """
import sys, threading
from controller.app.memory import TRIM_SECONDS, tune_malloc

def resident_mib():
    return int(next(each for each in open("/proc/self/status") if each.startswith("VmRSS")).split()[1]) >> 10

def burst():
    pieces = [bytes(3000 + number % 900) for number in range(4000)]
    kept.append(pieces[::500])

each_second = tune_malloc() if "small" in sys.argv else lambda: None
kept, before = [], resident_mib()
for _ in range(3):
    threads = [threading.Thread(target=burst) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
for _ in range(TRIM_SECONDS):
    each_second()
print(resident_mib() - before)
"""


def grown_mib(*words: str) -> int:
    run = [sys.executable, "-W", "ignore", "-c", BURSTS, *words]
    return int(subprocess.run(run, cwd=Path(__file__).parents[2], capture_output=True, check=True, timeout=60).stdout)


def test_bursts_of_many_threads_do_not_stay_in_the_daemons_size() -> None:
    assert grown_mib("small") < 0.25 * grown_mib()


def test_what_is_loaded_is_looked_through_neither_then_nor_later() -> None:
    before = gc.get_freeze_count()
    try:
        with contextlib.suppress(LookupError), without_collection():
            assert not gc.isenabled()
            raise LookupError
        assert gc.isenabled(), "whatever becomes of the loading"
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_hidden_packages_can_be_imported_afterwards() -> None:
    assert "this" not in sys.modules
    with without_importing("this", "json"):
        with pytest.raises(ImportError):
            importlib.import_module("this")
        assert importlib.import_module("json"), "what is imported already stays"
    assert importlib.util.find_spec("this") is not None
    assert "this" not in sys.modules


def test_the_daemon_loads_no_library_that_few_need() -> None:
    """They take some MiB together: the SDK of MCP, Alembic and others are loaded when they are first needed."""
    code = (
        "import importlib, sys\n"
        "from controller.app.memory import UNUSED, without_importing\n"
        "with without_importing(*UNUSED): importlib.import_module('controller.app.daemon')\n"
        "unloaded = (*UNUSED, 'mcp', 'alembic', 'cryptography', 'asyncssh', 'controller.ssh.process', 'jsonpath',"
        " 'httpcore', 'sqlalchemy.dialects.postgresql', 'controller.mcp.tools', 'controller.documents.compose',"
        " 'controller.app.doctor', 'controller.scheduler', 'controller.api.preview.app',"
        " 'controller.engine.files.operations')\n"
        "print([name for name in unloaded if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == (b"[]", b"")
