"""A real server of npm, installed from a registry of the lab as a client's documentation says, and used."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.lab.internet import Lab, impossible
from tests.lab.packages import REGISTRY, Packages
from tests.mcp.clients import FETCHED
from tests.mounts import unmount_below

NAME, IMAGE = "@modelcontextprotocol/server-filesystem", "paddock-test/mcp-npm:1"
MODULES = FETCHED / "node" / "node_modules"
pytestmark = [
    pytest.mark.mcp,
    pytest.mark.docker,
    pytest.mark.timeout(420),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]
RECIPE = """\
FROM paddock/base:1
COPY node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
USER root
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
USER 20000:20000
"""


def build_npm(folder: Path) -> None:
    """Make an image with the Node.js and npm that are here already: paddock/node:1 would take minutes."""
    node = (FETCHED / "venv" / "bin" / "node").resolve()
    shutil.copy(node, folder / "node")
    shutil.copytree(node.parents[1] / "lib" / "node_modules" / "npm", folder / "npm")
    (folder / "Dockerfile").write_text(RECIPE)
    subprocess.run(["docker", "build", "-q", "-t", IMAGE, str(folder)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def place(shared_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    build_npm(tmp_path_factory.mktemp("image"))
    shared_lab.begin()
    shared_lab.load("paddock/egress:1", IMAGE)
    shared_lab.docker("tag", IMAGE, "paddock/node:1")
    yield shared_lab
    shared_lab.docker("rmi", "paddock/node:1")
    shutil.rmtree(shared_lab.folder / "packages", ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(place: Lab) -> Iterator[RunningDaemon]:
    created = place.daemon(place.folder / "npm-state", PADDOCK_PACKAGE_SOURCES="[]", PADDOCK_NPM_REGISTRY=REGISTRY)
    yield created
    created.stop()
    place.remove_containers()
    unmount_below(Path("/run/paddock/mounts") / created.instance_id())


def ended(daemon: RunningDaemon, name: str) -> dict[str, Any]:
    """The condition of a server, and its install, once that has ended."""

    def look() -> dict[str, Any] | None:
        status = daemon.object("mcpservers", name).get("status", {})
        ready = next(iter(status.get("conditions", ())), {})
        is_over = ready.get("reason") in ("Unused", "InstallFailed")
        return {**ready, "install": status.get("install", {})} if is_over else None

    document: dict[str, Any] = wait_for(f"the install of {name} has ended", look, 180)
    return document


def test_a_real_server_is_installed_and_used(place: Lab, daemon: RunningDaemon) -> None:
    version = Packages(place.folder / "packages").npm_tree(MODULES, NAME)
    start = time.monotonic()
    output = daemon.paddock("mcp", "enable", "--", "npx", "-y", f"{NAME}@{version}", "/workspace").stdout
    assert output.startswith("mcpserver/server-filesystem created; its package is being installed")
    document = ended(daemon, "server-filesystem")
    seconds = time.monotonic() - start
    assert document["reason"] == "Unused", document["message"]
    print(f"\ninstall of {NAME}, {len(document['install']['lock'])} packages: {seconds:.1f} s (allowed 20)")
    bridge = [sys.executable, "-m", "controller", "mcp", "--server", "server-filesystem"]
    calls = (
        ("write_file", {"path": "/workspace/a.txt", "content": "kept in memory\n"}),
        ("read_text_file", {"path": "/workspace/a.txt"}),
    )
    with subprocess.Popen(
        bridge, env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        for number, (tool, sent) in enumerate(calls, 1):
            params = {"name": tool, "arguments": sent}
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
            client.stdin.write(f"{line}\n")
            client.stdin.flush()
            answer = json.loads(client.stdout.readline())
    assert answer["result"]["content"][0]["text"] == "kept in memory\n"


def test_a_version_that_npm_lacks_is_explained(daemon: RunningDaemon) -> None:
    daemon.paddock("mcp", "enable", "--name", "absent", "--", "npx", f"{NAME}@0.0.1")
    document = ended(daemon, "absent")
    assert "the registry does not have it" in document["message"]
