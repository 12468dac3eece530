"""E2B's own clients, unchanged, against a real daemon at full-isolation: the newest, and those of a year ago."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon import RunningDaemon
from tests.e2b_clients.conftest import Runner

pytestmark = [pytest.mark.e2b, pytest.mark.docker, pytest.mark.timeout(600)]


def passed(output: str) -> int:
    return sum(json.loads(line)["ok"] for line in output.splitlines() if line.startswith('{"check"'))


def test_every_call_of_the_python_client(run: Runner) -> None:
    assert passed(run.python("new", "sync_program.py")) > 60


def test_every_call_of_the_async_python_client(run: Runner) -> None:
    assert passed(run.python("new", "async_program.py")) > 15


def test_every_call_of_the_javascript_client(run: Runner) -> None:
    assert passed(run.node("js-new", "program.mjs")) > 30


def test_the_python_client_of_a_year_ago(run_by_domain: Runner) -> None:
    assert passed(run_by_domain.python("old", "sync_program.py", through="localhost.py")) > 45


def test_the_javascript_client_of_a_year_ago(run_by_domain: Runner) -> None:
    assert passed(run_by_domain.node("js-old", "program.mjs", through="localhost.mjs")) > 20


def test_the_newest_clients_by_domain(run_by_domain: Runner) -> None:
    assert passed(run_by_domain.python("new", "async_program.py", through="localhost.py")) > 15


def test_programs_of_the_readme_files(run: Runner) -> None:
    assert "Hello from E2B!" in run.python("new", "readme.py")
    assert "Hello from E2B!" in run.node("js-new", "readme.mjs")


@pytest.mark.parametrize("program", ["langchain_agent.py", "openai_agent.py", "smolagents_agent.py"])
def test_an_agent_of_a_framework(run: Runner, program: str) -> None:
    assert "42" in run.python("frameworks", program)


def test_fifty_sandboxes_in_parallel(run: Runner, daemon: RunningDaemon) -> None:
    with ThreadPoolExecutor(2) as both:
        python = both.submit(run.python, "new", "parallel.py", "small", "25")
        node = both.submit(run.node, "js-new", "parallel.mjs", "small", "25")
        assert "25 sandboxes" in python.result()
        assert "25 sandboxes" in node.result()
