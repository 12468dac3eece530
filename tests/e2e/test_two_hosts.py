"""A sandbox of host b, used through the daemon of host a: every way into it."""

import json
from pathlib import Path

import anyio
import httpx
import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.mcpserver.clients import client
from tests.two_hosts import two_hosts

pytestmark = [pytest.mark.docker, pytest.mark.postgres]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: far}
spec:
  host: b
  template: {image: "paddock/test-tiny:1", command: ["sh", "-c", "echo hello; exec sleep 1000000"]}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def hosts_of(daemon: RunningDaemon) -> dict[str, tuple[str, str]]:
    """Return what `paddock doctor` finds about other hosts."""
    document = json.loads(daemon.paddock("doctor", "-o", "json", check=False).stdout)
    return {
        entry["check"]: (entry["grade"], entry["found"]) for entry in document if entry["check"].startswith("host/")
    }


def executed(daemon: RunningDaemon) -> list[str]:
    """Return the writers of the audit log's entries of commands, as a daemon lists them."""
    items = json.loads(daemon.paddock("audit", "-o", "json").stdout)["items"]
    return [entry["writer"] for entry in items if entry["verb"] == "exec"]


def test_a_sandbox_is_used_through_any_daemon(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (a, b):
        a.apply(SANDBOX)
        a.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/far")
        assert a.paddock("exec", "far", "--", "echo", "there").stdout == "there\n"
        assert a.paddock("exec", "far", "--", "sh", "-c", "exit 7", check=False).returncode == 7
        assert a.paddock("exec", "-i", "far", "--", "cat", stdin="in and out").stdout == "in and out"
        assert "hello" in a.paddock("logs", "far").stdout
        (tmp_path / "file").write_text("copied")
        a.paddock("cp", str(tmp_path / "file"), "far:/tmp/file")
        a.paddock("cp", "far:/tmp/file", str(tmp_path / "back"))
        assert (tmp_path / "back").read_text() == "copied"
        assert "far" in a.paddock("attest", "far").stdout
        assert "far" in a.paddock("why", "far").stdout
        a.paddock("inspect", "far")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(a.socket)), base_url="http://paddock") as http:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            answer = http.post("/apis/paddock/v1alpha1/namespaces/default/sandboxes/far/mcp", json=message)
            assert (answer.status_code, "add `agent: {}`" in answer.text) == (409, True), "its host says so"
        for daemon in (a, b):
            listed = wait_for("its usage is listed", lambda daemon=daemon: daemon.paddock("top").stdout)
            assert [line.split()[:2] for line in listed.splitlines()] == [["NAME", "HOST"], ["far", "b"]]
        assert hosts_of(a)["host/b"][0] == "ok"
        assert "host/b/reach" not in hosts_of(a)
        assert "EngineReachable is False" in hosts_of(b)["host/a/conditions"][1]
        assert executed(b) == ["a"] * 3, "one each by the daemon that was asked, and none lost"
        marks = a.paddock("audit", "verify").stdout.splitlines()[1:]
        b.paddock("exec", "far", "--", "true")
        assert executed(a) == [*["a"] * 3, "b"]
        marks_then = b.paddock("audit", "verify", *(word for mark in marks for word in ("--expect", mark))).stdout
        assert [line.partition(":")[0] for line in marks_then.splitlines()[1:]] == ["a", "b"]
        b.stop()
        assert "missing hosts: b (its daemon was stopped)" in a.paddock("top").stderr
        assert hosts_of(a) == {"host/b": ("warning", "its daemon is away")}
        output = a.paddock("exec", "far", "--", "true", check=False)
        assert output.returncode != 0
        assert "its host `b` can't be reached" in output.stderr
        wait_for("the sandbox is still known", lambda: a.get("far"))


_POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"], workspace: {}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 2, host: b, shutdownGracePeriodSeconds: 0}
---
apiVersion: paddock/v1alpha1
kind: Workflow
metadata: {name: build}
spec:
  sandbox: {templateRef: {name: tiny}, lifecycle: {shutdownGracePeriodSeconds: 0}}
  stages:
  - {name: make, exec: {commands: ['echo built > /workspace/result', 'echo made']}}
  - {name: dist, copy: {from: /workspace/result, artifact: dist}}
"""


def test_a_workflow_runs_at_its_sandbox_and_is_read_through_any_daemon(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (a, _):
        a.apply(_POOL)
        texts = ("get", "sandboxpool", "warm", "-o", "yaml")
        wait_for("warm ones", lambda: "readyReplicas: 2" in a.paddock(*texts).stdout)
        out = tmp_path / "out"
        a.paddock("workflow", "run", "build", "--name", "one", "--wait", "--output", str(out))
        assert (out / "dist" / "result").read_text() == "built\n"
        assert a.paddock("workflow", "logs", "one", "make").stdout == "made\n"
        assert "dist" in a.paddock("workflow", "artifacts", "one").stdout
        (line,) = a.paddock("get", "workflowruns", "-o", "wide", "--no-headers").stdout.splitlines()
        assert "Succeeded" in line
        assert "b" in line.split(), "its host"
        base = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/new"
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(a.socket)), base_url="http://paddock", timeout=60
        ) as http:
            document = {"open": {"templateRef": {"name": "tiny"}}, "command": ["echo", "new"]}
            for _ in range(2):  # it is opened, then there
                answer = http.post(f"{base}/run", json=document, headers={"Idempotency-Key": "key"}).json()
                assert (answer["success"], answer["output"]) == (True, "new\n")
        assert a.get("new")["status"]["host"] == "b"


def test_its_resources_are_followed_through_any_daemon(tmp_path: Path) -> None:
    near = SANDBOX.replace("far", "near").replace("host: b", "host: a")  # host a has no engine
    uris = [f"sandbox://default/{entry}" for entry in ("far/files/tmp/note", "near/logs", "far/logs", "near")]
    heard: list[str] = []

    async def listen(a: RunningDaemon) -> None:
        async with client(a.socket) as created, created.listen(resource_subscriptions=uris) as stream:
            assert stream.honored.resource_subscriptions == [uris[0], uris[2], uris[3]]
            document = {"container": "far", "path": "/tmp/note", "content": "written"}
            assert not (await created.call_tool("docker.file.write", document)).is_error
            async for event in stream:
                heard.append(event.uri)  # type: ignore[union-attr]
                if uris[0] in heard:
                    return

    with two_hosts(tmp_path) as (a, _):
        a.apply(f"{SANDBOX}---{near}")
        a.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/far")
        anyio.run(listen, a)


KEEPING = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: keeping}
spec:
  host: b
  template:
    image: "paddock/test-tiny:1"
    command: ["sh", "-c", "echo kept > /kept/file; exec sleep 1000000"]
    volumes: [{name: kept, mountPath: /kept, size: 8Mi}]
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def test_what_a_host_keeps_is_found_through_any_daemon(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (a, b):
        a.apply(KEEPING)
        a.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/keeping")
        for daemon in (a, b):
            listed = [line.split()[:3] for line in daemon.paddock("get", "volumes").stdout.splitlines()]
            assert listed == [["NAME", "HOST", "STATUS"], ["kept", "b", "Bound"]]
        assert "used by sandbox keeping" in a.paddock("delete", "volume", "kept", check=False).stderr
        a.paddock("delete", "sandbox", "keeping")
        assert "Released" in a.paddock("describe", "volume", "kept").stdout
        images = a.paddock("image", "list")
        assert ["paddock/test-tiny:1", "b"] in [line.split()[:2] for line in images.stdout.splitlines()]
        assert "Without the images of missing hosts: a (" in images.stderr, "its engine is away"
        assert a.paddock("delete", "volume", "kept").stdout == 'volume.paddock "kept" deleted\n'
        assert "No resources found" in b.paddock("get", "volumes").stderr
        b.stop()
        assert "Without the volumes of missing hosts: b (" in a.paddock("get", "volumes").stderr
