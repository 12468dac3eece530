"""The agent in a sandbox by the daemon's front, and Paddock's own tools: the official conformance suite."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.mcp.clients import Endpoint, conform

pytestmark = [pytest.mark.mcp, pytest.mark.docker, pytest.mark.timeout(300)]
SANDBOX = {
    "apiVersion": "paddock/v1alpha1",
    "kind": "Sandbox",
    "metadata": {"name": "conforms"},
    "spec": {
        "template": {"image": "paddock/test-tiny:1", "agent": {}},
        "resources": {"limits": {"memory": "128Mi", "cpu": "500m", "pids": 64}},
    },
}


@pytest.fixture(scope="module")
def front(daemon: RunningDaemon, local: str) -> Iterator[Endpoint]:
    daemon.apply(json.dumps(SANDBOX))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/conforms")
    yield Endpoint(f"{local}/apis/paddock/v1alpha1/namespaces/default/sandboxes/conforms/mcp")
    daemon.paddock("delete", "sandbox", "conforms")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_the_front_conforms(front: Endpoint, revision: str, tmp_path: Path) -> None:
    conform(front, revision, tmp_path, f"agent-{revision}", "local")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_paddocks_own_tools_conform(local: str, revision: str, tmp_path: Path) -> None:
    conform(Endpoint(f"{local}/mcp"), revision, tmp_path, f"server-{revision}", "local")
