"""Paddock as an MCP server: agents of others create a sandbox, write a file, run it, read the result, and delete it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.mcp.clients import AGENTS, Endpoint, Step, drive, inspect, inspected

pytestmark = [pytest.mark.mcp, pytest.mark.docker, pytest.mark.timeout(300)]
PROGRAM = "import pathlib; pathlib.Path('/workspace/out').write_text(str(6 * 7))"


def journey(name: str, image: str) -> list[Step]:
    config = {
        "name": name,
        "image": image,
        "memory": "192Mi",
        "cpu": "500m",
        "spec": {"template": {"tmpfs": [{"mountPath": "/workspace", "size": "16Mi"}]}},
    }
    run = {"id": name, "command": ["python3", "/workspace/main.py"]}
    return [
        Step("docker.container.create", {"config": config}, '"ready":true'),
        Step("docker.file.write", {"id": name, "path": "/workspace/main.py", "content": PROGRAM}, "main.py"),
        Step("docker.container.exec", run, '"exitCode":0'),
        Step("docker.file.read", {"id": name, "path": "/workspace/out"}, "42"),
        Step("docker.container.exec", {"id": "of-somebody-else", "command": ["true"]}, "not found"),
        Step("docker.container.list", {}, name),
        Step("docker.container.remove", {"id": name}, '"gone":true'),
    ]


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("way", ["http", "stdio"])
def test_an_agent_gets_its_work_done(
    daemon: RunningDaemon, bearer: dict[str, str], way: str, name: str, tmp_path: Path
) -> None:
    """By the TCP listener with a token, and as a client's configuration has it: `paddock mcp`."""
    sandbox = f"{way}-{name}".replace("_", "-")
    steps, arguments, query = journey(sandbox, "paddock/python:1"), ("mcp",), ""
    if name == "openai_agent":  # whose LLM API refuses dots
        steps = [replace(step, tool=step.tool.replace(".", "_")) for step in steps]
        arguments, query = ("mcp", "--names", "underscore"), "?names=underscore"
    if way == "http":
        endpoint = Endpoint(f"{daemon.served()['api']}/mcp{query}", headers=bearer)
    else:
        token = tmp_path / "token"
        token.write_text(bearer["Authorization"].removeprefix("Bearer "))
        token.chmod(0o600)
        document = {"PADDOCK_SERVER": str(daemon.served()["api"]), "PADDOCK_TOKEN_FILE": str(token)}
        endpoint = Endpoint(command=(str(Path(sys.executable).parent / "paddock"), *arguments), env=document)
    drive(name, endpoint, steps, tmp_path)
    assert daemon.get(sandbox) == {}


def test_the_audit_names_tools_and_no_values(daemon: RunningDaemon, bearer: dict[str, str]) -> None:
    endpoint = Endpoint(f"{daemon.served()['api']}/mcp", headers=bearer)
    document = {"container": "nobody", "path": "/x", "content": PROGRAM}
    done = inspect(endpoint, "tools/call", "--tool-name", "docker.file.write", "--tool-args-json", json.dumps(document))
    assert "not found" in done.stdout + done.stderr
    audit = daemon.paddock("audit", "-o", "json").stdout
    calls = [entry for entry in json.loads(audit)["items"] if entry["object"]["name"] == "docker.file.write"]
    assert calls[-1]["actor"] == "token clients"
    assert calls[-1]["detail"]["arguments"] == {"container": "string", "path": "string", "content": "string"}
    assert PROGRAM not in audit


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_inspector_finds_nothing_to_complain_of(daemon: RunningDaemon, bearer: dict[str, str], era: str) -> None:
    endpoint = Endpoint(f"{daemon.served()['api']}/mcp", headers=bearer)
    done = inspect(endpoint, "tools/list", "--strict", era=era)
    assert (done.returncode, done.stderr) == (0, "")
    assert "docker.container.exec" in done.stdout
    inspected(endpoint, "resources/list", era=era)
    inspected(endpoint, "resources/templates/list", era=era)
    assert [prompt["name"] for prompt in inspected(endpoint, "prompts/list", era=era)["prompts"]]
