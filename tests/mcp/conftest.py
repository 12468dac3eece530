"""Targets of the MCP clients of others."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import finished
from tests.agent.containers import container, docker, runtime
from tests.daemon import RunningDaemon, running
from tests.mcp.clients import Endpoint


@contextlib.contextmanager
def relayed(*where: str) -> Iterator[int]:
    """Yield a port of this host whose connections end there: see relay.py."""
    relay = [sys.executable, str(Path(__file__).parent / "relay.py"), *where]
    with subprocess.Popen(relay, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture(scope="session")
def agent() -> Iterator[Endpoint]:
    """The agent in a busybox container without a network, through its network namespace."""
    with runtime() as volume, container(volume, {"callers": "Paddock"}) as name:
        docker("exec", name, "sh", "-c", "printf 'hello from the sandbox' > /workspace/hello.txt")
        pid = docker("inspect", "--format", "{{.State.Pid}}", name).strip()
        finished(lambda: "2134" in docker("exec", name, "cat", "/proc/net/tcp"))
        with relayed(pid, "8500") as port:
            yield Endpoint(f"http://127.0.0.1:{port}/mcp")


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with a TCP listener, whose tokens are what clients of others bring along."""
    folder = tmp_path_factory.mktemp("daemon")
    with running(folder / "state", PADDOCK_API_HOST="127.0.0.1", PADDOCK_API_PORT="0") as created:
        yield created


@pytest.fixture(scope="session")
def bearer(daemon: RunningDaemon) -> dict[str, str]:
    """The header of a user of the default namespace."""
    output = daemon.paddock("token", "create", "clients", "--role", "user", "--namespace", "default")
    return {"Authorization": f"Bearer {output.stdout.strip()}"}


@pytest.fixture(scope="session")
def local(daemon: RunningDaemon) -> Iterator[str]:
    """The daemon's Unix socket as a URL, for clients that can't be given a token."""
    with relayed(str(daemon.socket)) as port:
        yield f"http://127.0.0.1:{port}"
