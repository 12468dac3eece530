"""The gateway's client side by the official conformance suite: what it asks a server, and passes on of the answers."""

import sys
from pathlib import Path

import pytest

from tests.mcp.clients import ROOT, SUITE, run

pytestmark = [pytest.mark.mcp, pytest.mark.timeout(300)]
# All others are of HTTP clients (authorization, headers, retried streams), or of what servers in sandboxes do not get
# (elicitation, input). `request-metadata` wants it with every request: this asks for the era by `initialize` first.
SCENARIOS = ("initialize", "tools_call", "json-schema-2020-12-preservation", "json-schema-ref-no-deref")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_gateway_conforms_as_a_client(scenario: str, tmp_path: Path) -> None:
    command = f"env PYTHONPATH={ROOT} {sys.executable} -m tests.mcp.gateway_client"
    arguments = ("--scenario", scenario, "--timeout", "120000", "--output-dir", str(tmp_path))
    done = run("node", SUITE, "client", "--command", command, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OVERALL: PASSED" in done.stderr, done.stderr
