"""Limit of the daemon's open files, and its behaviour where there are none left."""

import json
import subprocess
import sys

import pytest

RAISED = """
import json, resource, sys
from controller.app.open_files import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(json.dumps([raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""
USED_UP = """
import resource
from controller.engine.docker.lifetime import listens
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 100))
print(listens("unix:///nowhere"))
"""


def said(script: str, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize(("soft", "hard", "now"), [(256, 4096, 4096), (2048, 2048, 2048)])
def test_the_daemon_takes_what_it_may_have(soft: int, hard: int, now: int) -> None:
    assert json.loads(said(RAISED, str(soft), str(hard))) == [now, now, hard]


def test_an_engine_is_not_called_gone_because_this_process_may_open_nothing() -> None:
    """An error here ended the threads that read the engine's events, for good."""
    assert said(USED_UP).strip() == "True"
