"""Every code sample of the SDK's README and every example runs, on one daemon.

The scraper needs an Internet: tests/security/test_credentials.py runs it in the lab.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import Paddock
from tests.daemon import ROOT, RunningDaemon, running, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
CLIENT = Path(__file__).resolve().parents[2] / "controller/client"
README = (CLIENT / "README.md").read_text()
SAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TITLES = [re.findall(r"^#+ (.*)$", README[: README.index(each)], re.MULTILINE)[-1] for each in SAMPLES]
EXAMPLES = sorted(path.stem for path in (CLIENT / "examples").glob("*.py"))
SERVER = """
import json, sys
TOOL = {"name": "add", "inputSchema": {"type": "object"}}
INFO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "sums", "version": "1"}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answers = {"initialize": {"protocolVersion": "2025-06-18"} | INFO, "tools/list": {"tools": [TOOL]}}
        answer = {"error": {"code": -32601, "message": "Method not found"}}
        if request["method"] in answers:
            answer = {"result": answers[request["method"]]}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"]} | answer), flush=True)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as made:
        yield made


def run(daemon: RunningDaemon, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated environment
    env = {**os.environ, "PADDOCK_SERVER": f"unix://{daemon.socket}", "PATH": path}
    command = [sys.executable, "-W", "error", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("sample", SAMPLES, ids=TITLES)
def test_samples_of_the_readme(daemon: RunningDaemon, tmp_path: Path, sample: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/main.py").write_text("print('main')\n")
    done = run(daemon, tmp_path, "-c", sample.replace('get("host")', f'get("{daemon.works_at.host}")'))
    assert done.returncode == 0, done.stderr


def example(daemon: RunningDaemon, folder: Path, name: str, *arguments: str) -> list[str]:
    """Return the lines that an example prints."""
    done = run(daemon, folder, str(CLIENT / "examples" / f"{name}.py"), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_tested_and_linked(name: str) -> None:
    tests = (Path(__file__).read_text(), (ROOT / "tests/security/test_credentials.py").read_text())
    assert any(re.search(rf'["/]{name}[".]', test) for test in tests)
    assert f"(examples/{name}.py)" in README


def test_coding_agent_corrects_itself(daemon: RunningDaemon, tmp_path: Path) -> None:
    lines = example(daemon, tmp_path, "coding_agent")
    assert lines[:3] == ["attempt 1: failed", "attempt 2: passed", "def slug(title):"]


def test_grading_survives_hostile_programs(daemon: RunningDaemon, tmp_path: Path) -> None:
    assert example(daemon, tmp_path, "grading") == [
        "ann: 3 of 3",
        "ben: 2 of 3",
        "eve: 0 of 3, out of time",
        "kim: 0 of 3, out of memory",
    ]


def test_fleet_of_a_pool_leaves_no_pool(daemon: RunningDaemon, tmp_path: Path) -> None:
    scores = [seed * 7919 % 101 for seed in range(12)]
    assert example(daemon, tmp_path, "fleet") == [f"best: task {scores.index(max(scores))} with {max(scores)}"]
    with Paddock(f"unix://{daemon.socket}") as paddock:
        assert not paddock.pools.list()


def test_mcp_servers_of_claude_code_run_sandboxed(daemon: RunningDaemon, tmp_path: Path) -> None:
    entry = {"type": "stdio", "command": "python3", "args": ["-c", SERVER], "env": {"MODE": "test"}}
    remote = {"type": "http", "url": "https://mcp.example.org/mcp"}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"sums": entry, "remote": remote}}))
    done = run(daemon, tmp_path, str(CLIENT / "examples/mcp_servers.py"), ".mcp.json")
    assert (done.returncode, done.stderr) == (0, "sums has ['add']\n")
    servers = json.loads(done.stdout)["mcpServers"]
    assert servers["remote"] == remote
    assert servers["sums"]["args"] == ["mcp", "--namespace", "default", "--server", "sums"]
    with Paddock(f"unix://{daemon.socket}") as paddock:
        assert paddock.mcp.is_sandboxed("sums")
        paddock.mcp.servers.delete("sums", wait=True)


@pytest.mark.images
def test_data_analysis_draws_a_chart(daemon: RunningDaemon, tmp_path: Path) -> None:
    assert example(daemon, tmp_path, "data_analysis") == ["{'Lima': '-20%', 'Oslo': '+40%'}"]
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_is_left(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        wait_for("every sandbox is gone", lambda: not paddock.sandboxes.list(), 60)
