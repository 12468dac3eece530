"""Frameworks, generators and linters of others: adapters on the real packages, and clients made from /openapi.json."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.daemon import RunningDaemon, running
from tests.sdk.clients import FETCHED, run

pytestmark = [pytest.mark.mcp, pytest.mark.docker, pytest.mark.timeout(300)]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


@pytest.fixture(scope="module")
def description(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The served /openapi.json as a file."""
    transport = httpx.HTTPTransport(uds=str(daemon.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", trust_env=False, timeout=60) as client:
        document = client.get("/openapi.json").json()
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("framework", ["langchain", "openai_agents", "pydantic_ai"])
def test_a_framework_calls_the_tools(daemon: RunningDaemon, tmp_path: Path, framework: str) -> None:
    program = str(PROGRAMS / "tools.py")
    done = run("python", program, framework, cwd=tmp_path, PADDOCK_SERVER=f"unix://{daemon.socket}")
    assert done.returncode == 0, done.stderr[-4000:]


def test_redocly_finds_no_error(description: Path, tmp_path: Path) -> None:
    arguments = ("lint", str(description), "--format", "stylish")
    done = run("node", str(FETCHED / "node/node_modules/@redocly/cli/bin/cli.js"), *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_generated_client_drives_a_sandbox(daemon: RunningDaemon, description: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("content_type_overrides: {application/x-tar: application/octet-stream}\n")
    arguments = ("--path", str(description), "--meta", "none", "--output-path", "generated", "--config", str(settings))
    output = run("openapi-python-client", "generate", *arguments, cwd=tmp_path)
    assert output.returncode == 0, output.stdout + output.stderr
    assert "Endpoint will not be generated" not in output.stdout
    done = run("python", str(PROGRAMS / "generated.py"), str(tmp_path), str(daemon.socket), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
