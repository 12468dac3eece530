"""Agents of others at work in one sandbox, through its agent's own tools."""

from pathlib import Path

import pytest

from tests.mcp.clients import AGENTS, Endpoint, Step, drive

pytestmark = [pytest.mark.mcp, pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_works_in_its_sandbox(agent: Endpoint, name: str, tmp_path: Path) -> None:
    folder = f"of-{name}"
    steps = [
        Step(
            "file.write",
            {"path": f"{folder}/main.sh", "content": "echo six times seven is $((6 * 7))"},
            f"{folder}/main.sh",
        ),
        Step("exec", {"command": ["sh", f"{folder}/main.sh"]}, "six times seven is 42"),
        Step("exec", {"command": f"sh {folder}/main.sh > {folder}/out"}),
        Step("file.read", {"path": f"{folder}/out"}, "six times seven is 42"),
        Step("file.read", {"path": "/etc/passwd"}, "outside the workspace"),
        Step("file.remove", {"path": folder, "recursive": True}, "removed"),
        Step("file.list", {}, "hello.txt"),
    ]
    calls = drive(name, agent, steps, tmp_path)
    assert folder not in calls[-1]["text"]
