"""The official SDK's client and the inspector in sandboxes of every level, with images of three kinds.

Both ways lead to the same agent: the daemon's front, and a forwarded port.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from controller.kinds.runtime import agent
from tests.daemon import RunningDaemon
from tests.lab.internet import Lab, impossible
from tests.mcp.clients import FETCHED, Endpoint, inspected
from tests.mounts import unmount_below
from tests.raw_client import Paddock

pytestmark = [
    pytest.mark.mcp,
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]
LEVELS = ("full-isolation", "development", "build", "production")
IMAGES = {
    "tiny": ("paddock/test-tiny:1", ["sh", "-c", "echo $((6 * 7))"]),
    "python": ("paddock/python:1", ["python3", "-c", "print(6 * 7)"]),
    "node": ("paddock-test/mcp-node:1", ["node", "-e", "console.log(6 * 7)"]),
}
MODES = ("auto", "legacy", "2026-07-28")


def build_node(folder: Path) -> None:
    """Make an image with the Node.js that is here already: paddock/node:1 would take minutes."""
    shutil.copy(FETCHED / "venv" / "bin" / "node", folder / "node")
    (folder / "Dockerfile").write_text("FROM paddock/base:1\nCOPY node /usr/local/bin/node\nUSER 20000:20000\n")
    subprocess.run(["docker", "build", "-q", "-t", IMAGES["node"][0], str(folder)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def place(shared_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    build_node(tmp_path_factory.mktemp("image"))
    shared_lab.begin()
    shared_lab.load("paddock/egress:1", agent.IMAGE, *(image for image, _ in IMAGES.values()))
    return shared_lab


@pytest.fixture(scope="module")
def sandboxes(place: Lab) -> Iterator[RunningDaemon]:
    daemon = place.daemon(place.folder / "levels-state", PADDOCK_PACKAGE_SOURCES="[]")
    names = [f"{level}-{kind}" for level in LEVELS for kind in IMAGES]
    for name in names:
        level, _, kind = name.rpartition("-")
        template = {"image": IMAGES[kind][0], "securityLevel": level, "agent": {}}
        limits = {"memory": "192Mi", "cpu": "500m", "pids": 64}
        spec = {"template": template, "resources": {"limits": limits}}
        daemon.apply(
            json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec})
        )
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=110s", *(f"sandbox/{name}" for name in names))
    yield daemon
    daemon.stop()
    place.remove_containers()
    unmount_below(Path("/run/paddock/mounts") / daemon.instance_id())


@contextlib.asynccontextmanager
async def through(way: str, daemon: RunningDaemon, name: str, mode: str) -> AsyncIterator[Client]:
    """Connect the SDK's client by the daemon's front or by a forwarded port."""
    with Paddock(f"unix://{daemon.socket}") as paddock, contextlib.ExitStack() as stack:
        if way == "front":
            transport = httpx2.AsyncHTTPTransport(uds=str(daemon.socket), verify=False)
            url = f"http://localhost/apis/paddock/v1alpha1/namespaces/default/sandboxes/{name}/mcp"
        else:
            transport = httpx2.AsyncHTTPTransport()
            forwarding = stack.enter_context(paddock.sandbox(name).forward(agent.PORT))
            url = f"http://127.0.0.1:{forwarding.port}/mcp"
        async with (
            httpx2.AsyncClient(transport=transport, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            yield client


async def works(client: Client, path: str, command: list[str], uid: str) -> None:
    """Use the agent as a model would; each answer is checked by the SDK against the tool's schema."""

    async def call(tool: str, **arguments: Any) -> Any:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result
        return result.structured_content

    assert (await call("exec", command=command))["stdout"] == "42\n"
    await call("file.write", path=path, content="from outside\n")
    done = await call("exec", command=f"cat {path}; id -u; touch /.paddock/x || true")
    assert done["stdout"] == f"from outside\n{uid}\n"
    assert "Read-only" in done["stderr"]
    assert (await call("file.read", path=path))["content"] == "from outside\n"
    assert (await client.call_tool("file.read", {"path": "../proc/1/environ"})).is_error
    await call("file.remove", path=path)


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("level", LEVELS)
def test_the_sdk_works_by_every_way(sandboxes: RunningDaemon, level: str, kind: str) -> None:
    status = sandboxes.get(f"{level}-{kind}")["status"]
    uid = status["user"].partition(":")[0]
    assert (int(uid) > 20_000, "userShared" in status) == (True, False)

    async def both() -> None:
        for way in ("front", "port"):
            for mode in MODES:
                async with through(way, sandboxes, f"{level}-{kind}", mode) as client:
                    await works(client, f"of-{way}-{mode}.txt", IMAGES[kind][1], uid)

    asyncio.run(both())


def test_the_inspector_works_by_the_bridge(sandboxes: RunningDaemon) -> None:
    """`paddock mcp --sandbox NAME` is the front on standard input and output."""
    command = (str(Path(sys.executable).parent / "paddock"), "mcp", "--sandbox", "production-python")
    bridge = Endpoint(command=command, env={"PADDOCK_SERVER": f"unix://{sandboxes.socket}"})
    call = ("--tool-name", "exec", "--tool-args-json", json.dumps({"command": ["id", "-u"]}))
    uid = sandboxes.get("production-python")["status"]["user"].partition(":")[0]
    for era in ("modern", "legacy"):
        assert inspected(bridge, "tools/call", *call, era=era)["structuredContent"]["stdout"] == f"{uid}\n"
