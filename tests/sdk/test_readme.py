"""Every code sample of the SDK's README and every example runs, on one daemon.

The scraper needs an Internet: tests/security/test_credentials.py runs it in the lab. The Compose app is one of the
projects of tests/compose.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
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
    with running(tmp_path_factory.mktemp("daemon"), PADDOCK_PREVIEW_ADDRESS="127.0.0.1:0") as made:
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


def test_example_folders_are_linked() -> None:
    folders = [path.name for path in (CLIENT / "examples").iterdir() if (path / "README.md").is_file()]
    assert folders
    assert all(f"(examples/{name}/README.md)" in README for name in folders)


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


def test_a_ci_job_brings_its_reports_out(daemon: RunningDaemon, tmp_path: Path) -> None:
    repository, reports = tmp_path / "repository", tmp_path / "reports"
    repository.mkdir()
    test = "class Warns(unittest.TestCase):\n    def test_it(self):\n        warnings.warn('old')\n"
    (repository / "test_warns.py").write_text(f"import unittest, warnings\n\n{test}")
    done = run(daemon, tmp_path, str(CLIENT / "examples/ci_job.py"), str(repository), str(reports))
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        1,
        ["plain: passed", "strict: failed (exit code 1)"],
    ), done.stderr
    assert "Ran 1 test" in (reports / "plain/tests.txt").read_text()
    assert "UserWarning: old" in (reports / "strict/tests.txt").read_text()
    assert sorted(path.name for path in repository.iterdir()) == ["test_warns.py"], "nothing is written beside it"


def test_a_web_preview_ends_with_ctrl_c(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("hello\n")
    command = [sys.executable, "-W", "error", str(CLIENT / "examples/web_preview.py"), str(tmp_path)]
    env = {**os.environ, "PADDOCK_SERVER": f"unix://{daemon.socket}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line.startswith("open http://"), program.stderr and program.stderr.read()
        link = urlsplit(line.split()[1])
        address, host = f"http://127.0.0.1:{link.port}/", {"Host": link.netloc}  # as a browser resolves its name
        cookie = httpx.get(f"{address}?{link.query}", headers=host, timeout=20).headers["set-cookie"]
        page = httpx.get(address, headers={**host, "Cookie": cookie.partition(";")[0]}, timeout=20)
        assert page.text == "hello\n"
        program.send_signal(signal.SIGINT)
        _, problems = program.communicate(timeout=60)
        assert (program.returncode, problems) == (0, "")


def test_a_notebook_keeps_results_and_branches(daemon: RunningDaemon, tmp_path: Path) -> None:
    table = "class Table:\n    def _repr_html_(self): return '<table></table>'\n"
    cells = ["print('start'); rate = 2", [table, "Table()"], "rate * 21", "rate / 0", "never = 1"]
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": "# Rates"},
            *({"cell_type": "code", "source": cell, "outputs": [], "execution_count": None} for cell in cells[:3]),
        ],
        "nbformat": 4,
    }
    path = tmp_path / "rates.ipynb"
    path.write_text(json.dumps(notebook))
    program = str(CLIENT / "examples/notebook_backend.py")
    done = run(daemon, tmp_path, program, str(path), "rate = 3; rate * 21")
    assert (done.returncode, done.stdout) == (0, "rates.ipynb: passed\nbranch: 63\n"), done.stderr
    shown = [cell.get("outputs") for cell in json.loads(path.read_text())["cells"]]
    assert shown[1] == [{"output_type": "stream", "name": "stdout", "text": "start\n"}]
    assert shown[2][0]["data"]["text/html"] == "<table></table>"
    assert (shown[3][0]["output_type"], shown[3][0]["data"]["text/plain"]) == ("execute_result", "42")
    notebook["cells"] = [{"cell_type": "code", "source": cell} for cell in cells[3:]]
    path.write_text(json.dumps(notebook))
    done = run(daemon, tmp_path, program, str(path))
    assert (done.returncode, done.stdout) == (1, "rates.ipynb: failed\n"), done.stderr
    failed, skipped = json.loads(path.read_text())["cells"]
    assert (failed["outputs"][0]["ename"], "outputs" in skipped) == ("NameError", False)


@pytest.mark.images
def test_data_analysis_draws_a_chart(daemon: RunningDaemon, tmp_path: Path) -> None:
    assert example(daemon, tmp_path, "data_analysis") == ["{'Lima': '-20%', 'Oslo': '+40%'}"]
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_is_left(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        wait_for("every sandbox is gone", lambda: not paddock.sandboxes.list(), 60)
