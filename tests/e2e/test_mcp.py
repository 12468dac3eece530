"""MCP on the real engine: a sandbox's whole life by tools, clients that go, and containers of others."""

import http.client
import json
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.mcpserver.clients import ERAS, Mcp, connected

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
CONFIG = {
    "image": "paddock/python:1",
    "memory": "128Mi",
    "spec": {
        "lifecycle": {"shutdownGracePeriodSeconds": 0},
        "template": {"tmpfs": [{"mountPath": "/data", "size": "8Mi"}]},
    },
}
COMPOSE = """
name: pair
x-paddock: {securityLevel: full-isolation, lifecycle: {shutdownGracePeriodSeconds: 0}}
services:
  one: {image: "paddock/python:1", command: [sleep, infinity], mem_limit: 64m}
  two: {image: "paddock/python:1", command: [sleep, infinity], mem_limit: 64m}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon"), PADDOCK_IMAGE_BUILD="run") as created:
        yield created


@pytest.fixture(scope="module")
def mcp(daemon: RunningDaemon) -> Iterator[Mcp]:
    with connected(daemon.socket) as created:
        yield created


@pytest.mark.parametrize("era", ERAS)
def test_a_sandbox_lives_by_tools(mcp: Mcp, daemon: RunningDaemon, era: str) -> None:
    name = f"life-{uuid.uuid4().hex[:8]}"
    created = mcp.data("docker.container.create", {"config": {**CONFIG, "name": name}}, era=era)
    assert (created["status"], created["ready"]) == ("Running", True)
    script = {"container": name, "path": "/data/src/a.py", "content": "import sys; print(6 * 7); sys.exit(3)"}
    mcp.data("docker.file.write", script, era=era)
    ran = mcp.data("docker.container.exec", {"id": name, "command": ["python3", "/data/src/a.py"]}, era=era)
    assert (ran["stdout"], ran["exitCode"], ran["success"]) == ("42\n", 3, False)
    read = mcp.data("docker.file.read", {"container": name, "path": "/data/src/a.py"}, era=era)
    assert read["content"] == script["content"]
    assert mcp.data("docker.container.logs", {"id": name}, era=era)["log"] == ""
    assert mcp.data("sandbox.why", {"name": name}, era=era)["verdict"] == "AsAsked"

    def figures() -> Any:
        with suppress(MCPError):  # of a sandbox that has just started there are none yet
            return mcp.do("read_resource", f"sandbox://default/{name}/metrics", era=era).contents[0]

    metrics = wait_for("its figures", figures)
    assert json.loads(metrics.text)["usage"]["processes"] >= 1
    stopped = mcp.data("docker.container.stop", {"id": name}, era=era)
    assert (stopped["status"], stopped["ready"]) == ("Suspended", False)
    assert "is not running" in mcp.error("docker.container.exec", {"id": name, "command": ["true"]}, era=era)
    assert mcp.data("docker.container.start", {"id": name}, era=era)["ready"]
    container = daemon.get(name)["status"]["instanceRef"]["containerID"]
    assert mcp.data("docker.container.exec", {"id": container[:12], "command": ["true"]}, era=era)["success"]
    assert mcp.data("docker.container.remove", {"id": name}, era=era)["gone"]
    assert container not in docker("ps", "-aq", "--no-trunc")


def test_code_runs_in_one_call(mcp: Mcp) -> None:
    first = mcp.data("code.run", {"code": "open('/workspace/a', 'w').write('kept'); print(6 * 7)"})
    assert (first["stdout"], first["created"]) == ("42\n", True)
    again = mcp.data("code.run", {"code": "cat a; yes | head -c 100000", "language": "bash", "id": first["id"]})
    assert again["stdout"].startswith("kept")
    assert len(again["stdout"]) < (32 << 10) + 64
    assert mcp.do("read_resource", again["resource"]).contents[0].text == "kept" + "y\n" * 50_000
    chart = "x = 6\nclass Chart:\n    def _repr_png_(self): return b'PNG'\ndisplay(Chart())"
    answer = mcp.call("code.run", {"code": chart, "id": first["id"]})
    assert [(block.type, getattr(block, "mime_type", "")) for block in answer.content] == [
        ("text", ""),
        ("image", "image/png"),
    ]
    assert answer.content[1].data == "UE5H"
    stored = mcp.data("code.run", {"code": "x * 7", "id": first["id"]})
    assert (stored["value"], stored["stateful"], "pictures" in stored) == ("42", True, False)
    assert mcp.data("code.run", {"code": "x", "id": first["id"], "fresh": True})["exitCode"] == 1
    mcp.data("docker.container.remove", {"id": first["id"]})


def test_an_image_is_built_of_two_arguments(mcp: Mcp) -> None:
    dockerfile = "FROM paddock/test-tiny:1\nCOPY a.txt /a.txt\n"
    [name] = mcp.data("docker.image.build", {"dockerfile": dockerfile, "context": {"a.txt": "x"}})["image"]["names"]
    docker("rmi", name)
    failing = f"{dockerfile}RUN echo about to fail && exit 3\n"
    text = mcp.error("docker.image.build", {"dockerfile": failing, "context": {"a.txt": "x"}})
    assert "about to fail" in text
    assert "non-zero code: 3" in text


def sandboxes_of(mcp: Mcp) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = mcp.data("docker.container.list")["items"]
    return listed


def test_a_missing_image_is_an_error(mcp: Mcp) -> None:
    start = time.monotonic()
    for name, image in (("imageless", "paddock/nowhere:1"), ("imageless-too", "registry.invalid/nowhere:1")):
        text = mcp.error("docker.container.create", {"name": name, "image": image})
        assert "nowhere:1" in text
        assert "images here: " in text
    assert time.monotonic() - start < 25  # before the end of either wait
    wait_for("their end", lambda: not any("imageless" in sandbox["name"] for sandbox in sandboxes_of(mcp)))


def test_what_is_refused_starts_nothing(mcp: Mcp) -> None:
    config = {**CONFIG, "name": "evil", "spec": {"template": {"privileged": True}, "workspace": {"hostPath": "/etc"}}}
    text = mcp.error("docker.container.create", {"config": config})
    assert "spec.template.privileged" in text
    config["spec"] = {"workspace": {"hostPath": "/etc"}}
    assert "spec.workspace.hostPath" in mcp.error("docker.container.create", {"config": config})
    assert "evil" not in {entry["name"] for entry in mcp.data("docker.container.list")["items"]}


def test_containers_of_others_do_not_exist(mcp: Mcp) -> None:
    foreign = docker("run", "-d", "--rm", "--network", "none", "paddock/python:1", "sleep", "600")
    try:
        name = docker("inspect", "-f", "{{.Name}}", foreign).lstrip("/")
        for sent in (foreign, foreign[:12], name):
            for tool in ("docker.container.exec", "docker.container.logs", "docker.container.remove"):
                document = {"id": sent, **({"command": ["true"]} if tool.endswith("exec") else {})}
                assert "not found" in mcp.error(tool, document)
        assert docker("inspect", "-f", "{{.State.Running}}", foreign) == "true"
    finally:
        docker("rm", "-f", foreign, check=False)


def test_a_client_gone_leaves_no_process(mcp: Mcp, daemon: RunningDaemon) -> None:
    mcp.data("docker.container.create", {"config": {**CONFIG, "name": "gone"}})
    container = daemon.get("gone")["status"]["instanceRef"]["containerID"]

    def runs() -> bool:
        return "987654" in docker("top", container, "-o", "pid,args")

    call = {"name": "docker.container.exec", "arguments": {"id": "gone", "command": ["sleep", "987654"]}}
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(daemon.socket))
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    connection.request("POST", "/mcp", body, headers)
    wait_for("the command runs", runs, 60)
    with suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)
    connection.sock.close()
    wait_for("the command is dead", lambda: not runs(), 60)


def test_a_compose_project_runs_and_goes(mcp: Mcp) -> None:
    up = mcp.data("docker.compose.up", {"file": COMPOSE})
    assert [(entry["name"], entry["status"]) for entry in up["items"]] == [
        ("pair-one", "Running"),
        ("pair-two", "Running"),
    ]
    assert mcp.data("docker.container.exec", {"id": "pair-two", "command": ["true"]})["success"]
    assert mcp.data("docker.compose.down", {"file": COMPOSE})["gone"]
