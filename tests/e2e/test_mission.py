"""The mission, typed as it was written: each line works, or says what to write instead.

Lines that have a test of their own elsewhere are here once all the same, so that no word of them gets lost.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pexpect
import pytest

from controller.kinds.mcpserver import MCPServerSpec
from controller.policy.mcpserver import image_of, session_template
from tests.daemon import ROOT, RunningDaemon, running

MAKE = """
dev build test test-error up down logs logs-tail watch shell restart health stats info security-check scan prune pull
prod-build prod-up build-no-cache clean
"""
TALKING = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: talking}
spec:
  template:
    image: paddock/test-tiny:1
    command: [sh, -c, "n=0; while :; do n=$((n + 1)); echo line $n; sleep 0.2; done"]
    agent: {}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
LEVELS = {
    "full-isolation": "Full Isolation (No Network)",
    "development": "Development (Local Network)",
    "build": "Build (Package Access)",
    "production": "Production (Full Access)",
}
# Builds and pushes of images need a setting, and say which.
CONFIG = {"name": "asked", "image": "paddock/test-tiny:1", "memory": "64Mi", "command": ["sleep", "1000000"]}
COMPOSE = """\
x-paddock: {securityLevel: full-isolation}
services:
  one: {image: 'paddock/test-tiny:1', command: [sleep, '1000000'], mem_limit: 32m}
"""
TEMPLATE = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t}
spec:
  image: paddock/test-tiny:1
  command: ["sleep", "1000000"]
  workspace: {}
  agent: {build: [echo, built], test: [echo, tested]}
"""
DOCKER_LLM = """
docker_llm:
  endpoint: http://docker-llm-gateway:8090
  models:
  - {id: llama3-container, image: "llama3:8b", resources: {memory: 8G, cpus: 4, gpus: 1}}
"""
POOL = """
warm_containers: 3
max_containers: 20
startup_timeout: 30s
shutdown_timeout: 10s
preload: [{image: "node:20", count: 2}]
total_memory: 32G
total_cpus: 16
"""
PANEL = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: form}
spec:
  enabled: true
  image: node:20
  resources: {memory: 8G, cpus: 4, gpus: 1}
  security: {level: development, networkMode: bridge, readOnlyRootFs: true, capabilities: [NET_ADMIN]}
  volumes: [{source: /srv, target: /data, readOnly: true}]
  environment: {A: b}
"""
WORKFLOW = """
apiVersion: paddock/v1alpha1
kind: Workflow
metadata: {name: asked}
spec:
  stages:
  - {name: create, sandbox.create: {image: "node:20", resources: {memory: 4G}}}
  - {name: plan, agent: planning, provider: anthropic/claude-3-opus, execute_in: sandbox, tools: [file.read, exec, git]}
  - {name: test, sandbox.exec: {commands: [npm test]}}
  - {name: results, sandbox.copy: {source: /workspace/dist, destination: ./output}}
"""
MANIFEST = """
name: docker-mcp-tools
version: 1.0.0
type: mcp-provider
author: somebody
description: tools
main: index.js
requirements: {docker: ">=20.10", mcp: ">=1.0"}
configuration: {image: {type: string, default: node, description: an image}}
permissions: [docker.access, filesystem.read, filesystem.write, network.local]
"""
SERVER = """
apiVersion: paddock/v1alpha1
kind: MCPServer
metadata: {name: asked}
spec: {trust: user_added, command: npx, args: [server-filesystem@2026.8.31], sandbox_enabled: false}
"""
SNIPPET = "echo 'Hello!'\n"
# Through another host's daemon the host's quota says so: which host has how many, only that one knows.
_TOO_MANY = ("can never fit",) if "PADDOCK_TEST_FOREIGN" in os.environ else ("1000 can never fit", "this host has")
# Command line: exit code, and words of its output in order. `FILE` is a file with the text of that name.
LINES: list[tuple[str, int, tuple[str, ...]]] = [
    (
        "config provider add docker-llm --type docker --endpoint http://localhost:8090",
        0,
        ("http://127.0.0.1:8090/default/v1", "specs/modelserver/smol.yaml"),
    ),
    (
        "config provider add docker-llm --type docker --endpoint http://example.org:8090",
        1,
        ("Paddock's own gateway at http://localhost:8090", "--type openai"),
    ),
    ("config provider add gemini --type gemini --model gemini-pro", 0, ("provider.paddock/gemini created",)),
    ("config provider add openai --type openai --model gpt-4", 0, ("provider.paddock/openai created",)),
    ("config provider add anthropic --type anthropic --model claude-3-opus", 0, ("created",)),
    ("config mcp enable docker-desktop", 0, ("configured",)),
    ("config mcp set docker.socket /var/run/docker.sock", 1, ("never get Docker's socket", "docker_host =")),
    ("project open my-app --template t", 0, ("project my-app is open",)),
    ("project config sandbox --project my-app --memory 1G --cpus 1 --network bridge", 0, ("configured",)),
    ("project config sandbox --project my-app --memory 8G --cpus 1000", 1, _TOO_MANY),
    ("project config sandbox --project my-app --network host", 1, ("no sandbox shares the network of the host",)),
    ("project config sandbox --project my-app --network none", 1, ("--security-level full-isolation",)),
    ("plugin install docker-mcp-tools", 0, ("plugin/docker-mcp-tools installed",)),
    ("plugin config docker-mcp-tools --enable-compose", 0, ("configured",)),
    (
        "plugin config docker-mcp-tools --enable-compose --enable-swarm",
        0,
        ("--enable-swarm", "placement comes with several hosts"),
    ),
    ("plugin install MANIFEST", 1, ("main: plugins are data here", "docker.access", "network.local")),
    ("sandbox list", 0, ("my-app",)),
    ("sandbox exec my-app -- echo tested", 0, ("tested",)),
    (
        "sandbox exec my-app -- env",
        0,
        ("MCP_ENABLED=true", "MCP_MODE=sandbox", "MCP_PROJECT_ID=", "MCP_SECURITY_LEVEL="),
    ),
    ("sandbox logs my-app --tail 100", 0, ()),
    ("sandbox inspect my-app", 0, ("kind: Inspection",)),
    ("sandbox cp my-app:/etc/passwd -", 0, ()),
    ("sandbox top my-app", 0, ("my-app",)),
    ("sandbox stop my-app", 0, ("run state updated",)),
    ("sandbox start my-app", 0, ("run state updated",)),
    ("run --image paddock/test-tiny:1 -f SNIPPET.sh", 0, ("Hello!",)),
    ("run --image paddock/test-tiny:1 -d --name snippet -f SNIPPET.sh", 0, ("snippet",)),
    ("sandbox logs snippet", 0, ()),
    ("sandbox stop snippet", 0, ("run state updated",)),
    ("apply -f DOCKER_LLM", 1, ("docker_llm: not a document; write a ModelServer", "http://127.0.0.1:8090")),
    (
        "apply -f POOL",
        1,
        (
            "`warmReplicas`",
            "`maxReplicas`",
            "`startupDeadlineSeconds: 30`",
            "`shutdownGracePeriodSeconds: 10`",
            "a SandboxPool for each image",
            "`quota: {memory: 32Gi}`",
            '`quota: {cpu: "16"}`',
        ),
    ),
    (
        "apply -f PANEL",
        1,
        (
            "write `runState: Running`",
            "`spec.template.image`",
            "write `resources: {limits: {memory: 8Gi}}`",
            'write `resources: {limits: {cpu: "4"}}`',
            "write `resources: {limits: {gpus: 1}}`",
            "write `securityLevel: NAME`",
            "`spec.template.volumes`",
            "write `env:",
        ),
    ),
    (
        "apply -f WORKFLOW",
        1,
        (
            "write the run's sandbox once",
            "write `agent: {provider: NAME, model: MODEL}`",
            "execute_in: unknown field; an agent's tools always run in the sandbox",
            "write `agent: {tools: [...]}`",
            "write `exec: {commands: [...]}`",
            "write `copy: {from: /workspace/dist, artifact: dist}`",
        ),
    ),
    ("apply -f MANIFEST", 1, ("a plugin's manifest; install it with `paddock plugin install FILE`",)),
    ("apply -f SERVER", 1, ("sandbox_enabled: unknown field; every server runs in a sandbox",)),
]
# Tool, arguments, and words of its result or of its refusal.
TOOLS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("docker.container.create", {"config": CONFIG}, ('"ready": true',)),
    ("docker.file.write", {"container": "asked", "path": "/tmp/a", "content": "hello"}, ("/tmp/a",)),
    ("docker.file.read", {"container": "asked", "path": "/tmp/a"}, ("hello",)),
    ("docker.file.list", {"container": "asked", "path": "/tmp"}, ('"a"',)),
    ("docker.container.exec", {"id": "asked", "command": ["cat", "/tmp/a"]}, ("hello", '"exitCode": 0')),
    ("docker.container.logs", {"id": "asked", "options": {"tail": 10}}, ("log",)),
    ("docker.container.stop", {"id": "asked"}, ("Suspended",)),
    ("docker.container.start", {"id": "asked"}, ('"ready": true',)),
    ("docker.container.remove", {"id": "asked"}, ('"gone": true',)),
    ("docker.image.build", {"dockerfile": "FROM scratch", "context": {}}, ("image_build",)),
    ("docker.image.push", {"name": "example.org/x:1"}, ("push_registries",)),
    ("docker.image.pull", {"name": "127.0.0.1:1/x:1"}, ("127.0.0.1:1",)),
    ("docker.compose.up", {"file": COMPOSE, "options": {"project": "asked"}}, ("one",)),
    ("docker.compose.down", {"file": "asked"}, ("asked-one",)),
]


@pytest.mark.parametrize("target", MAKE.split())
def test_make_targets(target: str) -> None:
    listed = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {target} +\S", listed, re.MULTILINE)
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for match in re.findall(r"(?:deploy|images)/[a-z-]+\.sh", done.stdout):
        assert (ROOT / match).is_file(), match


@pytest.mark.parametrize(
    ("trust", "memory", "cpu", "pids"), [("user_added", "512Mi", "500m", 50), ("verified", "1Gi", "1", 100)]
)
def test_limits_of_untrusted_servers(trust: str, memory: str, cpu: str, pids: int) -> None:
    spec = MCPServerSpec.model_validate({"trust": trust, "command": "npx", "args": ["x@1.0.0"]})
    assert (spec.startup_seconds, spec.call_seconds, spec.sandbox) == (30, 300, "Required")
    template = session_template(spec)
    assert template["resources"]["limits"] == {"memory": memory, "cpu": cpu, "pids": pids}
    assert template["securityLevel"] == "full-isolation"  # a read-only root, no network
    assert template["tmpfs"] == [{"mountPath": "/tmp", "size": "100Mi"}]
    images = {"npx": "node", "node": "node", "python": "python", "uvx": "python", "deno": "deno", "bun": "bun"}
    for command, image in images.items():  # the program of the image
        assert f"/{image}:" in image_of(spec.model_copy(update={"command": command}))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("mission")
    home = folder / "home"
    (home / ".cursor").mkdir(parents=True)  # so that `mcp enable` finds a client here, and no file of the checkout
    with running(folder / "state") as created:
        created.environment["HOME"] = str(home)
        created.apply(TEMPLATE)
        yield created


@pytest.mark.docker
@pytest.mark.timeout(300)
def test_commands_and_configuration(daemon: RunningDaemon, tmp_path: Path) -> None:
    for name in ("DOCKER_LLM", "POOL", "PANEL", "WORKFLOW", "MANIFEST", "SERVER"):
        (tmp_path / name).write_text(globals()[name])
    (tmp_path / "SNIPPET.sh").write_text(SNIPPET)
    for line, code, arguments in LINES:
        typed = [str(tmp_path / entry) if (tmp_path / entry).is_file() else entry for entry in shlex.split(line)]
        done = daemon.paddock(*typed, check=False)
        output = done.stdout + done.stderr
        assert done.returncode == code, f"{line}: {output}"
        for argument in arguments:
            assert argument in output, f"{line}: `{argument}` is missing in {output}"


def lasting(daemon: RunningDaemon, line: str) -> pexpect.spawn:
    """The command line at a terminal of its own."""
    command, environment = ["-m", "controller", *line.split()], {**daemon.environment, "TERM": "xterm"}
    return pexpect.spawn(sys.executable, command, cwd=str(ROOT), env=environment, timeout=60, dimensions=(24, 120))


@pytest.mark.docker
@pytest.mark.timeout(300)
def test_commands_that_last(daemon: RunningDaemon) -> None:
    """They go on until they are interrupted, or the shell is left."""
    daemon.apply(TALKING)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/talking")
    logs = lasting(daemon, "sandbox logs talking --follow --tail 100")
    for number in (1, 2, 3):  # what was there, and what comes
        logs.expect(rf"line {number}\r\n")
    logs.sendintr()
    logs.expect(pexpect.EOF)
    shell = lasting(daemon, "sandbox shell talking")
    shell.sendline("echo in''side; exit 7")
    shell.expect("inside")
    shell.expect(pexpect.EOF)
    shell.wait()
    assert shell.exitstatus == 7
    forward = lasting(daemon, "sandbox port-forward talking :8500")
    forward.expect(r"Forwarding from 127\.0\.0\.1:(\d+) -> 8500")
    assert httpx.get(f"http://127.0.0.1:{int(forward.match.group(1))}/", timeout=60).status_code < 500  # its agent
    forward.sendintr()
    forward.expect(pexpect.EOF)


def test_levels_have_their_labels_in_the_panel() -> None:
    """The panel says what each allows beside them, from its profile (tests/panel/test_form.py)."""
    form = (ROOT / "controller" / "api" / "panel" / "static" / "pages" / "form.js").read_text()
    [match] = re.findall(r"^const LEVELS = \{(.+)\};$", form, re.MULTILINE)
    assert dict(re.findall(r"'?([a-z-]+)'?: '([^']+)'", match)) == LEVELS


@pytest.mark.docker
@pytest.mark.timeout(300)
def test_tools_by_name(daemon: RunningDaemon) -> None:
    for name, arguments, message in TOOLS:
        done = daemon.paddock("mcp", "call", name, "--json", json.dumps(arguments), check=False)
        output = done.stdout + done.stderr
        for entry in message:
            assert entry in output, f"{name}: {output}"


@pytest.mark.docker
def test_a_project_knows_its_name_and_level(daemon: RunningDaemon) -> None:
    daemon.paddock("project", "open", "known")
    level = daemon.get("known")["spec"]["template"]["securityLevel"]
    assert level in ("development", "full-isolation")  # the former where the host's firewall guards it
    names = "PROJECT_ID PROJECT_NAME SECURITY_LEVEL MCP_PROJECT_ID MCP_SECURITY_LEVEL MCP_MODE MCP_ENABLED"
    line = "; ".join(f"echo ${name}" for name in names.split())
    parts = daemon.paddock("exec", "known", "--", "sh", "-c", line).stdout.split()
    assert parts == ["known", "known", level, "known", level, "sandbox", "true"]
    daemon.paddock("delete", "sandbox", "known")


@pytest.mark.docker
def test_paths_of_the_agent_and_the_bridge(daemon: RunningDaemon) -> None:
    daemon.paddock("project", "open", "paths", "--template", "t")
    transport = httpx.HTTPTransport(uds=str(daemon.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client:
        at = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/paths"

        def post(path: str, **body: Any) -> dict[str, Any]:
            document: dict[str, Any] = client.post(f"{at}/{path}", json=body).json()
            return document

        answer = post("mcp/execute", tool="exec", parameters={"command": "echo", "args": ["hi"]})
        assert (answer["success"], answer["output"], answer["error"], answer["exitCode"]) == (True, "hi\n", None, 0)
        printed = post("mcp/execute", tool="exec", parameters={"command": "printf", "args": "'%s, ' 'a b' c"})
        assert printed["output"] == "a b, c, "
        metadata = {"agentType": "coding", "provider": "anthropic", "model": "claude"}
        write = {"tool": "file.write", "parameters": {"path": "a.txt", "content": "x"}}
        tools = ["build", "test", write, {"tool": "file.read", "parameters": {"path": "a.txt"}}]
        several = post("mcp/execute", type="tool_use", tools=tools, context={}, metadata=metadata)
        assert several["success"], several
        assert [entry["tool"] for entry in several["result"]] == ["build", "test", "file.write", "file.read"]
        assert several["output"].startswith("built\n\ntested\n")
        requested = {"projectId": "paths", "requiredTools": ["exec"], "context": "work", "agentType": "coding"}
        requested["context"] = {"task": "work", "files": ["a.txt"]}
        missing = post("run", **requested, provider="anthropic/claude-3-opus")
        assert (missing["success"], "`anthropic`" in str(missing["error"])) == (False, True), missing
        assert "make them agree" in post("run", **{**requested, "projectId": "another"})["message"]
        done = post("run", projectId="paths", command=["echo", "hi"])
        assert (done["success"], done["output"], done["files"]) == (True, "hi\n", [])
        assert done["metrics"]["durationSeconds"] > 0
