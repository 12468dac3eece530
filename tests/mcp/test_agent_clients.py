"""The agent in a sandbox, asked by clients of others: the official conformance suite, and the inspector."""

from pathlib import Path

import pytest

from tests.mcp.clients import Endpoint, conform, inspect, inspected

pytestmark = [pytest.mark.mcp, pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_the_agent_conforms(agent: Endpoint, revision: str, tmp_path: Path) -> None:
    conform(agent, revision, tmp_path, f"agent-{revision}")


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_inspector_uses_the_agent(agent: Endpoint, era: str) -> None:
    names = {tool["name"] for tool in inspected(agent, "tools/list", era=era)["tools"]}
    assert {"exec", "file.read", "file.changes", "build", "git"} <= names
    call = ("--tool-name", "exec", "--tool-args-json", '{"command": ["id", "-un"]}')
    assert inspected(agent, "tools/call", *call, era=era)["structuredContent"]["stdout"] == "sandbox\n"
    uri = next(resource["uri"] for resource in inspected(agent, "resources/list", era=era)["resources"])
    assert inspected(agent, "resources/read", "--uri", uri, era=era)["contents"][0]["text"] == "hello from the sandbox"
    templates = inspected(agent, "resources/templates/list", era=era)["resourceTemplates"]
    assert templates[0]["uriTemplate"] == "file:///workspace/{+path}"


def test_no_model_provider_stumbles_over_a_schema(agent: Endpoint) -> None:
    done = inspect(agent, "tools/list", "--strict")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_refusal_is_an_error_with_its_reason(agent: Endpoint) -> None:
    call = ("--tool-name", "file.read", "--tool-args-json", '{"path": "../etc/passwd"}')
    done = inspect(agent, "tools/call", *call)
    assert done.returncode != 0
    assert "outside the workspace" in done.stdout + done.stderr
