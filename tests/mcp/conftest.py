"""What the MCP clients of others are pointed at."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import finished
from tests.agent.containers import container, docker, runtime
from tests.mcp.clients import Endpoint


@pytest.fixture(scope="session")
def agent() -> Iterator[Endpoint]:
    """The agent in a busybox container without a network, through its network namespace."""
    with runtime() as volume, container(volume, {"callers": "Paddock"}) as name:
        docker("exec", name, "sh", "-c", "printf 'hello from the sandbox' > /workspace/hello.txt")
        pid = docker("inspect", "--format", "{{.State.Pid}}", name).strip()
        finished(lambda: "2134" in docker("exec", name, "cat", "/proc/net/tcp"))
        relay = [sys.executable, str(Path(__file__).parent / "relay.py"), pid, "8500"]
        with subprocess.Popen(relay, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield Endpoint(f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp")
            process.kill()
