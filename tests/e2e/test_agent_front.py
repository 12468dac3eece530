"""Sandboxes with an agent behind a real daemon: the front, the quick path of commands, and what no agent may spoil.

One daemon, and two sandboxes that differ in their agent alone; what works in both has to answer the same.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from paddock._client.errors import ClientError
from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.examples import examples
from tests.raw_client import Paddock, Sandbox

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
API = "http://paddock/apis/paddock/v1alpha1/namespaces/default/sandboxes"
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template:
    image: paddock/test-tiny:1
    command: ["sleep", "1000000"]
    %s
    tmpfs: [{mountPath: /workspace, size: 16Mi}]
    execDeadlineSeconds: 60
  resources: {limits: {memory: 64Mi, cpu: "2"}}
  lifecycle: {shutdownGracePeriodSeconds: 0, idleTimeoutSeconds: %d}
"""
POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: warm}
spec:
  image: paddock/test-tiny:1
  agent: {}
  tmpfs: [{mountPath: /workspace, size: 16Mi}]
  resources: {limits: {memory: 64Mi}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: warm}, warmReplicas: 1, maxReplicas: 2}
"""
# Prints the pids of the agent and its supervisors, the agent's first.
AGENT = """
for each in /proc/[0-9]*; do
    case $(tr '\\0' ' ' < $each/cmdline 2>/dev/null) in /.paddock/*) echo ${each#/proc/};; esac
done | sort -n
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        for name, agent, idle in (("with", "agent: {}", 1800), ("without", "", 1800), ("dozing", "agent: {}", 2)):
            created.apply(SANDBOX % (name, agent, idle))
        for name in ("with", "without"):
            created.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")
        yield created


@pytest.fixture
def http(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(daemon.socket), verify=False)
    with httpx.Client(base_url=API, transport=transport, timeout=120) as client:
        yield client


def tool(http: httpx.Client, name: str, sandbox: str = "with", **parameters: Any) -> dict[str, Any]:
    answer = http.post(f"/{sandbox}/mcp/execute", json={"tool": name, "parameters": parameters})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def calls(daemon: RunningDaemon) -> float:
    """Return how many commands took the agent's way."""
    text = httpx.get(daemon.works_at.metrics_url(), timeout=60).text
    return float(re.findall(r'paddock_agent_calls_total\{outcome="ok",tool="exec"\} (\S+)', text)[0])


def test_tools_and_files_meet_in_one_workspace(daemon: RunningDaemon, http: httpx.Client, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(bytes(range(256)))
    daemon.paddock("cp", str(source), "with:/workspace/in")
    assert tool(http, "file.stat", path="in")["result"]["size"] == 256
    tool(http, "file.write", path="deep/out", content="from the agent")
    daemon.paddock("cp", "with:/workspace/deep/out", str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "from the agent"
    done = tool(http, "exec", command=["sh", "-c", "id -u; exit 4"])
    its_own = daemon.get("with")["status"]["user"].partition(":")[0]
    assert (done["success"], done["exitCode"], done["output"]) == (False, 4, f"{its_own}\n")
    before = calls(daemon)
    ran = daemon.paddock("exec", "with", "--", "sh", "-c", "echo out; echo err >&2; exit 3", check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("out\n", "err\n", 3)
    assert calls(daemon) == before + 1
    outside = tool(http, "file.read", path="/etc/passwd")
    assert (outside["success"], "path is outside the workspace" in outside["error"]) == (False, True)


def test_mcp_answers_through_the_front(http: httpx.Client) -> None:
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    for method, params in (("tools/list", {}), ("tools/call", {"name": "exec", "arguments": {"command": "echo hi"}})):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        document = {"mcp-name": "exec"} if "name" in params else {}
        answer = http.post("/with/mcp", json=body, headers={**headers, "mcp-method": method, **document})
        assert answer.status_code == 200, answer.text
        if document:
            assert answer.json()["result"]["structuredContent"]["stdout"] == "hi\n"
        else:
            assert {"exec", "file.read", "git"} <= {entry["name"] for entry in answer.json()["result"]["tools"]}


def test_what_is_refused_says_what_to_do(daemon: RunningDaemon, http: httpx.Client) -> None:
    answer = http.post("/without/mcp/execute", json={"tool": "exec", "parameters": {"command": "true"}})
    assert (answer.status_code, "add `agent: {}` to its template" in answer.json()["message"]) == (409, True)
    large = json.dumps({"tool": "file.write", "parameters": {"path": "x", "content": "x" * (5 << 20)}})
    answer = http.post("/with/mcp/execute", content=large, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    answer = http.post("/with/mcp/execute", json={"tool": "exec", "parameters": {"command": "true", "timeout_s": 61}})
    assert (answer.status_code, "60" in answer.json()["message"]) == (400, True)
    assert "answers" in daemon.paddock("why", "with").stdout
    assert re.search(r"agent +none", daemon.paddock("why", "without").stdout)


def test_a_command_past_its_time_leaves_nothing(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        script = "echo begun; setsid env -i sleep 4321 >/dev/null 2>&1 & setsid sleep 4321 & sleep 4321"
        done = paddock.sandbox("with").exec(["sh", "-c", script], timeout_seconds=1)
        assert (done.exit_code, done.timed_out, done.stdout) == (124, True, b"begun\n")
        output = docker("top", str(daemon.get("with")["status"]["instanceRef"]["name"]), "-eo", "pid,args")
        assert "4321" not in output
        assert daemon.get("with")["status"]["restartCount"] == 0  # nothing was left, so nothing more was killed


def test_signals_and_a_closed_connection_reach_a_command(daemon: RunningDaemon) -> None:
    before = calls(daemon)
    with Paddock(f"unix://{daemon.socket}") as paddock:
        sandbox = paddock.sandbox("with")
        with sandbox.start(
            ["sh", "-c", "trap 'echo heard; exit 9' INT; echo ready; while :; do sleep 0.05; done"]
        ) as run:
            assert next(run).data == b"ready\n"
            run.signal("INT")
            assert b"".join(output.data for output in run) == b"heard\n"
            assert run.exit_code == 9
        with sandbox.start(["sh", "-c", "echo $$; setsid sleep 5432 & exec sleep 5432"]) as run:
            assert next(run).data
        assert calls(daemon) == before + 2
        container = str(daemon.get("with")["status"]["instanceRef"]["name"])
        wait_for("all of it is gone", lambda: "5432" not in docker("top", container, "-eo", "pid,args"), 60)


def test_a_stopped_or_killed_agent_costs_no_command(daemon: RunningDaemon, http: httpx.Client) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        sandbox = paddock.sandbox("with")
        container = str(daemon.get("with")["status"]["instanceRef"]["name"])
        pid = docker("exec", container, "sh", "-c", AGENT).split()[0]
        docker("exec", container, "kill", "-STOP", pid)
        assert "does not answer" in daemon.paddock("why", "with").stdout
        done = sandbox.exec(["echo", "still"])
        assert (done.exit_code, done.stdout) == (0, b"still\n")
        answer = http.post("/with/mcp/execute", json={"tool": "exec", "parameters": {"command": "true"}})
        assert (answer.status_code, "sandbox `with`" in answer.json()["message"]) == (503, True)
        assert "AgentNotAnswering" in daemon.paddock("events").stdout
        docker("exec", container, "kill", "-CONT", pid)
        wait_for("the agent answers", lambda: answers(http), 60)
        assert "AgentAnswers" in daemon.paddock("events").stdout
        # Dead, it takes the sandbox with it; the restart policy decides, and the next call finds the new run's agent.
        with pytest.raises(ClientError):
            sandbox.exec(["sh", "-c", f"kill -KILL {pid}; sleep 60"])
        wait_for("it was restarted", lambda: daemon.get("with")["status"].get("restartCount") == 1, 60)
        wait_for("its agent answers", lambda: answers(http), 60)


def test_a_claim_on_a_warm_pool_answers_at_once(daemon: RunningDaemon, http: httpx.Client) -> None:
    daemon.apply(POOL)
    with Paddock(f"unix://{daemon.socket}") as paddock:
        wait_for(
            "the pool is full", lambda: paddock.get("sandboxpools", "warm").get("status", {}).get("readyReplicas"), 60
        )
    spec = {"templateRef": {"name": "warm"}, "poolPolicy": "Require"}
    body = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": "claim"}, "spec": spec}
    http.post(API, json=body).raise_for_status()
    assert tool(http, "exec", "claim", command="echo hi")["output"] == "hi\n"  # nobody waited for Ready


def test_a_call_wakes_a_sandbox_that_is_idle(daemon: RunningDaemon, http: httpx.Client) -> None:
    wait_for("it is suspended", lambda: daemon.condition("dozing", "Ready").get("reason") == "IdleReaped", 90)
    assert tool(http, "exec", "dozing", command="echo hi")["output"] == "hi\n"
    with Paddock(f"unix://{daemon.socket}") as paddock:
        wait_for("it is suspended", lambda: daemon.condition("dozing", "Ready").get("reason") == "IdleReaped", 90)
        assert paddock.sandbox("dozing").exec(["echo", "hi"]).stdout == b"hi\n"


def answers(http: httpx.Client) -> bool:
    answer = http.post("/with/mcp/execute", json={"tool": "exec", "parameters": {"command": "true"}})
    return answer.status_code == 200


Do = Callable[[Sandbox], Any]
COMMANDS = (
    ["true"],
    ["sh", "-c", "echo out; echo err >&2; exit 7"],
    ["cat"],
    ["sh", "-c", "kill -TERM $$"],
    ["head", "-c", "2500000", "/dev/zero"],
    ["sh", "-c", "printf '\\377\\376'; printf '\\200' >&2"],
    ["no-such-program"],
    ["/etc/passwd"],
    ["sh", "-c", "env | grep -v -e PADDOCK_EXEC -e HOSTNAME -e MCP_ | sort; pwd; umask; id -un; ulimit -n"],
    ["sh", "-c", "(sleep 0.05; echo late) & echo early"],
    ["sh", "-c", "readlink /proc/self/fd/0 | tr -d '0-9'; echo $PPID >/dev/null"],
    ["ls", "-a", "/workspace"],
)
NAMES = st.sampled_from(["a", "b", "dir/c", "dir", "dir/../a", "../bin/sh"])
DATA = st.sampled_from([b"", b"text\n", bytes(range(256)), b"x" * 300_000])


def test_both_ways_answer_the_same(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        sandboxes = [paddock.sandbox(name) for name in ("with", "without")]

        class Both(RuleBasedStateMachine):
            """Commands and files of two sandboxes, one with an agent."""

            @rule(
                command=st.sampled_from(COMMANDS),
                stdin=st.sampled_from([b"", b"in\n", bytes(range(256)) * 600]),
                folder=st.sampled_from(["", "/", "/workspace", "/etc", "/no/such", "/root", "/etc/passwd"]),
                env=st.sampled_from([{}, {"A": "b c\n"}, {"PATH": "/no"}]),
            )
            def execute(self, command: list[str], stdin: bytes, folder: str, env: dict[str, str]) -> None:
                self.same(lambda sandbox: outcome(sandbox.exec(command, stdin=stdin, working_dir=folder, env=env)))

            @rule(name=NAMES, data=DATA)
            def write(self, name: str, data: bytes) -> None:
                self.same(lambda sandbox: untimed(sandbox.files.write(f"/workspace/{name}", data)))

            @rule(name=NAMES)
            def read(self, name: str) -> None:
                self.same(lambda sandbox: sandbox.files.read(f"/workspace/{name}"))

            @rule(name=NAMES)
            def list_(self, name: str) -> None:
                self.same(lambda sandbox: [untimed(entry) for entry in sandbox.files.entries(f"/workspace/{name}")])

            @rule(name=NAMES, recursive=st.booleans())
            def remove(self, name: str, recursive: bool) -> None:
                self.same(lambda sandbox: sandbox.files.remove(f"/workspace/{name}", recursive=recursive))

            def same(self, do: Do) -> None:
                first, second = (result(do, sandbox) for sandbox in sandboxes)
                assert first == second

        run_state_machine_as_test(
            Both,
            settings=settings(
                max_examples=examples(6),
                stateful_step_count=10,
                deadline=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            ),
        )


def result(do: Do, sandbox: Sandbox) -> Any:
    try:
        return do(sandbox)
    except ClientError as error:
        return re.sub(r"`with(out)?`", "`NAME`", str(error))


def outcome(done: Any) -> tuple[Any, ...]:
    return done.exit_code, done.stdout, done.stderr, done.truncated, done.timed_out


def untimed(entry: Any) -> Any:
    return replace(entry, modified=0.0, uid=0, gid=0)  # two users
