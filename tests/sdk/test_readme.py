"""Every code sample of the SDK's README and every example runs, on one daemon."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import Paddock
from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
CLIENT = Path(__file__).resolve().parents[2] / "controller/client"
README = (CLIENT / "README.md").read_text()
SAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TITLES = [re.findall(r"^#+ (.*)$", README[: README.index(each)], re.MULTILINE)[-1] for each in SAMPLES]
BEST = max(range(20), key=lambda seed: (seed * 7919) % 101)
EXAMPLES = {
    "pool_agent": ["10 -> 45", "100 -> 4950", "1000 -> 499500"],
    "streaming": [
        "stdout: step fetch",
        "stdout: step compile",
        "stdout: error: no such symbol",
        "stdout: a shell line may report, too",
    ],
    "fan_out": [str({"seed": BEST, "score": (BEST * 7919) % 101})],
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as made:
        yield made


def run(daemon: RunningDaemon, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PADDOCK_SERVER": f"unix://{daemon.socket}"}
    command = [sys.executable, "-W", "error", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("sample", SAMPLES, ids=TITLES)
def test_samples_of_the_readme(daemon: RunningDaemon, tmp_path: Path, sample: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/main.py").write_text("print('main')\n")
    done = run(daemon, tmp_path, "-c", sample.replace('get("host")', f'get("{daemon.works_at.host}")'))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(daemon: RunningDaemon, tmp_path: Path, name: str) -> None:
    path = CLIENT / "examples" / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 45
    done = run(daemon, tmp_path, str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == EXAMPLES[name]


def test_nothing_is_left(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        wait_for("every sandbox is gone", lambda: not paddock.sandboxes.list(), 60)
