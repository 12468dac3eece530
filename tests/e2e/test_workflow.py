"""Workflows, projects, the bridge and plugins on a real engine: one daemon, and one that is killed in a run."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import paddock
from controller.cli.calls.workflows import WorkflowRuns
from paddock._client.connection import Connection, connect
from paddock._client.errors import Refused
from tests.daemon import RunningDaemon, remove_containers, running, start_daemon, wait_for

pytestmark = pytest.mark.docker
BUILD = """
apiVersion: paddock/v1alpha1
kind: Workflow
metadata: {name: build}
spec:
  parameters: [{name: ref, default: main}]
  sandbox:
    template: {image: "paddock/test-tiny:1", workspace: {}}
  stages:
  - name: make
    exec:
      commands: ['mkdir -p /workspace/dist', 'echo "built $REF" > /workspace/dist/result', 'echo made']
      env: [{name: REF, value: $(parameters.ref)}]
    outputs: [{name: said, path: /workspace/dist/result}]
  - name: use
    exec:
      commands: ['echo "got $SAID"']
      env: [{name: SAID, value: $(stages.make.outputs.said)}]
  - {name: dist, copy: {from: /workspace/dist, artifact: dist}}
  finally: [{name: last, exec: {commands: ["true"]}}]
"""
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"], workspace: {}}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("workflows")) as created:
        created.apply(BUILD)
        created.apply(SANDBOX)
        yield created


@contextmanager
def api(daemon: RunningDaemon) -> Iterator[Connection]:
    connection = connect(f"unix://{daemon.socket}")
    try:
        yield connection
    finally:
        connection.close()


def phase(daemon: RunningDaemon, name: str) -> str:
    with api(daemon) as created:
        return str(WorkflowRuns(created, "default").get(name)["status"].get("phase"))


def names(daemon: RunningDaemon, plural: str) -> list[str]:
    return [document["metadata"]["name"] for document in daemon.objects(plural)]


def running_stages(daemon: RunningDaemon, run: str) -> list[str]:
    stages = daemon.object("workflowruns", run).get("status", {}).get("stages", ())
    return [stage["name"] for stage in stages if stage["state"] == "Running"]


def plugin_condition(daemon: RunningDaemon, name: str, type_: str) -> tuple[str, str]:
    """Return status and reason of a plugin's condition; ("", "") while it has none."""
    conditions = daemon.object("plugins", name).get("status", {}).get("conditions", ())
    return next(((entry["status"], entry["reason"]) for entry in conditions if entry["type"] == type_), ("", ""))


def test_run_waits_shows_progress_and_unpacks_artifacts(daemon: RunningDaemon, tmp_path: Path) -> None:
    done = daemon.paddock(
        "workflow", "run", "build", "--name", "one", "-p", "ref=v1", "--wait", "--output", str(tmp_path / "out")
    )
    assert (tmp_path / "out" / "dist" / "result").read_text() == "built v1\n"
    assert [line.split()[:2] for line in done.stderr.splitlines()][-1] == ["last", "ok"]
    assert daemon.paddock("workflow", "logs", "one").stdout == "== make\nmade\n== use\ngot built v1\n== dist\n== last\n"
    assert "dist" in daemon.paddock("workflow", "artifacts", "one").stdout
    assert "Succeeded" in daemon.paddock("get", "workflowruns").stdout
    assert "RunSucceeded" in daemon.paddock("describe", "workflowrun", "one").stdout
    why = daemon.paddock("why", "workflowrun/one").stdout.splitlines()
    assert (why[0], why[1], why[2]) == ("workflowrun/one is Succeeded", "  Succeeded", "Stages:")
    wait_for("its sandbox to be gone", lambda: not daemon.objects("sandboxes"))


def test_failed_and_cancelled_runs_say_so(daemon: RunningDaemon) -> None:
    failing = BUILD.replace("name: build", "name: fails").replace("'echo made'", "'exit 3'")
    daemon.apply(failing.replace("'exit 3'", "'echo the test b failed', 'exit 3'"))
    done = daemon.paddock("workflow", "run", "fails", "--wait", check=False)
    assert done.returncode == 1
    assert "StageFailed: stage `make` failed: exit code 3" in done.stderr
    assert "--- last output of make ---\nthe test b failed\n" in done.stderr
    daemon.apply(BUILD.replace("name: build", "name: slow").replace("'echo made'", "'sleep 1000'"))
    daemon.paddock("workflow", "run", "slow", "--name", "slow")
    wait_for("its stage", lambda: running_stages(daemon, "slow") == ["make"])
    daemon.paddock("workflow", "cancel", "slow")
    wait_for("its end", lambda: phase(daemon, "slow") == "Cancelled", 60)


def test_stage_that_prints_without_end_keeps_head_and_tail(daemon: RunningDaemon) -> None:
    noise = "'echo first; head -c 16000000 /dev/zero | tr \"\\000\" x; echo; echo last'"
    daemon.apply(BUILD.replace("name: build", "name: loud").replace("'echo made'", noise))
    daemon.paddock("workflow", "run", "loud", "--name", "loud", "--wait")
    output = daemon.paddock("workflow", "logs", "loud", "make").stdout
    assert (output[:6], output[-6:], len(output) < 8 << 20) == ("first\n", "\nlast\n", True)


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        (("'echo made'", "'echo $(parameters.ref)'"), "stages[0].exec.commands[2]", "pass it as a variable"),
        (("$(parameters.ref)", "$(parameters.x)"), "stages[0].exec.env[0].value", "names no parameter"),
        (("- {name: dist,", "- {name: dist, after: [nope],"), "stages[2].after[0]", "`nope` is not a stage"),
        (("- {name: dist,", "- {name: dist, after: [dist],"), "stages[2].after[0]", "can't wait for itself"),
    ],
)
def test_bad_workflow_is_refused_with_its_line(
    daemon: RunningDaemon, change: tuple[str, str], place: str, words: str
) -> None:
    done = daemon.paddock("apply", "-f", "-", stdin=BUILD.replace(*change), check=False)
    assert done.returncode != 0
    assert words in done.stderr
    assert place in done.stderr


def test_project_opens_closes_and_is_configured(daemon: RunningDaemon) -> None:
    missing = daemon.paddock("project", "open", "my-app", "--template", "nope", check=False)
    assert "`nope`" in missing.stderr
    daemon.paddock("project", "open", "my-app", "--template", "t", "--size", "8Mi")
    daemon.paddock("exec", "my-app", "--", "sh", "-c", "echo kept > /workspace/f")
    assert daemon.condition("my-app", "Ready")["status"] == "True"
    assert daemon.paddock("project", "list").stdout.splitlines()[1].split()[:3] == ["my-app", "open", "t"]
    options = ("--memory", "128Mi", "--cpus", "1", "--network", "bridge")
    daemon.paddock("project", "config", "sandbox", "--project", "my-app", *options)
    assert daemon.get("my-app")["spec"]["resources"]["limits"]["memory"] == "128Mi"
    output = daemon.paddock("project", "config", "sandbox", "--project", "my-app", "--network", "host", check=False)
    assert "no sandbox shares the network of the host" in output.stderr
    too_many = daemon.paddock("project", "config", "sandbox", "--project", "my-app", "--cpus", "1000", check=False)
    assert (too_many.returncode != 0, "processors" in too_many.stderr or "cpu" in too_many.stderr) == (True, True)
    assert "my-app" in daemon.paddock("sandbox", "list").stdout
    assert daemon.paddock("sandbox", "exec", "my-app", "--", "echo", "hi").stdout == "hi\n"
    daemon.paddock("project", "close", "my-app")
    assert daemon.get("my-app")["spec"]["runState"] == "Suspended"
    daemon.paddock("project", "open", "my-app")
    assert daemon.condition("my-app", "Ready")["status"] == "True"
    assert daemon.paddock("exec", "my-app", "--", "cat", "/workspace/f").stdout == "kept\n", "closing keeps the sources"
    daemon.paddock("delete", "sandbox", "my-app")
    volumes = daemon.paddock("get", "volumes").stdout
    assert "src-my-app" in volumes


def test_project_without_a_template_has_sources_and_data(daemon: RunningDaemon) -> None:
    daemon.paddock("project", "open", "plain", "--image", "paddock/test-tiny:1", "--size", "8Mi")
    spec = daemon.get("plain")["spec"]
    assert spec["resources"] == {"limits": {"memory": "4Gi"}, "cpuShares": 1024}
    assert spec["lifecycle"]["idleTimeoutSeconds"] == 1800
    write = "cd /workspace; echo x > src/f; echo y > data/f; cat src/f data/f"
    mounted = daemon.paddock("exec", "plain", "--", "sh", "-c", write).stdout
    assert mounted == "x\ny\n"
    output = daemon.paddock("project", "open", "theirs", "--folder", "/etc", check=False)
    assert "spec.workspace.hostPath" in output.stderr


def test_bridge_runs_once_for_racing_clients(daemon: RunningDaemon) -> None:
    daemon.paddock("project", "open", "bridged", "--template", "t", "--size", "8Mi")
    body: dict[str, Any] = {"command": ["sh", "-c", "echo x >> /workspace/count; cat /workspace/count"]}

    def ask(_number: int) -> Any:
        with api(daemon) as created:
            return created.request("POST", "namespaces/default/sandboxes/bridged/run", json=body, headers={KEY: "k1"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert (answers[0]["success"], answers[0]["output"], answers[0]["error"]) == (True, "x\n", None)
    assert answers[0]["files"] == [{"path": "count", "size": 2, "sha256": sha256(b"x\n").hexdigest()}]
    metrics = answers[0]["metrics"]
    assert metrics["durationSeconds"] > 0
    assert metrics["cpuSeconds"] > 0
    assert metrics["memoryPeakBytes"] is None or metrics["memoryPeakBytes"] > 0  # an older kernel has no memory.peak
    with api(daemon) as created_api:
        path = "namespaces/default/sandboxes/bridged/run"
        with pytest.raises(Refused, match="was used for another request") as refusal:
            created_api.request("POST", path, json={"command": ["true"]}, headers={KEY: "k1"})
        assert refusal.value.code == 422
        failed = created_api.request("POST", path, json={"command": ["sh", "-c", "exit 4"], "copyOut": "/workspace"})
        assert (failed["success"], failed["error"], failed["files"]) == (False, "exit code 4", [])
        assert created_api.request("POST", path, json={"command": ["true"]})["files"] == [], "nothing was changed"
        again = created_api.request("POST", path, json={"command": ["true"], "copyOut": "/workspace"})
        assert [file["path"] for file in again["files"]] == ["count"], again["error"]


KEY = "Idempotency-Key"


def test_killed_daemon_follows_the_stage_that_runs(tmp_path: Path) -> None:
    slow = BUILD.replace("'echo made'", "'echo run >> /workspace/runs; sleep 4; cat /workspace/runs >&2'")
    daemon = start_daemon(tmp_path)
    try:
        daemon.apply(slow)
        daemon.paddock("workflow", "run", "build", "--name", "r", "--keep-sandbox", "Always")
        wait_for("its stage", lambda: running_stages(daemon, "r") == ["make"], 60)
        daemon.kill()
        daemon = start_daemon(tmp_path)
        wait_for("its end", lambda: phase(daemon, "r") == "Succeeded", 90)
        with api(daemon) as created:
            run = WorkflowRuns(created, "default").get("r")
            assert {stage["name"]: stage["attempt"] for stage in run["status"]["stages"]}["make"] == 1
            sandbox = run["status"]["sandboxRef"]["name"]
        assert daemon.paddock("exec", sandbox, "--", "cat", "/workspace/runs").stdout == "run\n", "it ran once"
    finally:
        daemon.stop()
        remove_containers(daemon.instance_id())


REFUSED = ("False", "PermissionsNotGranted")
MANIFEST = """
name: tickets
version: 1.0.0
type: tool
permissions: [{secret: tickets-token}]
configuration: {memory: {type: string, default: 64Mi}}
objects:
- kind: SandboxTemplate
  metadata: {name: tickets}
  spec:
    image: paddock/test-tiny:1
    resources: {limits: {memory: $(config.memory)}}
    secrets: [{name: tickets-token, mountPath: /run/token}]
"""


def test_plugin_is_installed_configured_and_removed(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(MANIFEST)
    done = daemon.paddock("plugin", "install", str(tmp_path))
    assert "it asks for secret tickets-token; add --grant" in done.stderr
    wait_for("its refusal", lambda: plugin_condition(daemon, "tickets", "Accepted") == REFUSED)
    daemon.paddock("plugin", "config", "tickets", "--memory", "128Mi", "--grant")
    wait_for("its objects", lambda: plugin_condition(daemon, "tickets", "Ready")[0] == "True", 60)
    assert "Ready" in daemon.paddock("plugin", "list").stdout
    document = daemon.object("sandboxtemplates", "tickets")
    assert document["spec"]["resources"]["limits"]["memory"] == "128Mi"
    swarm = daemon.paddock("plugin", "config", "tickets", "--enable-swarm", check=False)
    assert "placement comes with several hosts" in swarm.stderr
    code = MANIFEST.replace("[{secret: tickets-token}]", "[docker.access]") + "main: index.js\n"
    (tmp_path / "plugin.yaml").write_text(code)
    output = daemon.paddock("plugin", "install", str(tmp_path), check=False)
    assert "plugins are data here" in output.stderr
    assert "no plugin gets the engine" in output.stderr
    daemon.paddock("plugin", "remove", "tickets")
    wait_for("its end", lambda: "tickets" not in names(daemon, "sandboxtemplates"))


def test_plugin_of_models_brings_server_and_provider(daemon: RunningDaemon) -> None:
    small = ("--set", "image=paddock/test-tiny:1", "--set", "memory=64Mi")
    done = daemon.paddock("plugin", "install", "docker-llm-provider", *small)
    assert "network api.openai.com; secret docker-llm-key; add --grant" in done.stderr
    name = "docker-llm-provider"
    wait_for("its refusal", lambda: plugin_condition(daemon, name, "Accepted") == REFUSED)
    daemon.paddock("plugin", "config", name, "--idle-seconds", "60", "--grant")
    wait_for("its objects", lambda: plugin_condition(daemon, name, "Ready")[0] == "True", 60)
    server = daemon.object("modelservers", "llama3-container")["spec"]
    assert (server["resources"]["limits"]["memory"], server["lifecycle"]["idleTimeoutSeconds"]) == ("64Mi", 60)
    spec = daemon.object("providers", "docker-llm")["spec"]
    assert spec["limits"] == {"tokensPerDay": 1_000_000}
    daemon.paddock("plugin", "remove", "docker-llm-provider")
    for plural, name in (("modelservers", "llama3-container"), ("providers", "docker-llm")):
        wait_for(f"the end of {name}", lambda plural=plural, name=name: name not in names(daemon, plural))


def test_unknown_command_is_a_program_of_the_path(daemon: RunningDaemon, tmp_path: Path) -> None:
    program = tmp_path / "paddock-hello"
    program.write_text('#!/bin/sh\necho "hello $1 at $PADDOCK_NAMESPACE"\nexit 3\n')
    program.chmod(0o755)
    daemon.environment["PATH"] = f"{tmp_path}:{daemon.environment['PATH']}"
    done = daemon.paddock("-n", "team", "hello", "--you", check=False)
    assert (done.stdout, done.returncode) == ("hello --you at team\n", 3)


def test_client_runs_a_task_once_for_its_key(daemon: RunningDaemon) -> None:
    daemon.paddock("project", "open", "tasked", "--template", "t", "--size", "8Mi")
    with paddock.Paddock(f"unix://{daemon.socket}") as client:
        sandbox = client.sandboxes.get("tasked")
        ask = {"command": ["sh", "-c", "echo x >> /workspace/n; cat /workspace/n"], "idempotency_key": "k"}
        first, again = sandbox.run_task(**ask), sandbox.run_task(**ask)
    assert (first.success, first.output) == (True, "x\n")
    assert first == again
