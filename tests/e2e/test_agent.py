"""Sandboxes with agents on a real daemon and engine: started, answering, ended with their command, warm in a pool."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for
from tests.raw_client import Paddock

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

TINY, PYTHON = "paddock/test-tiny:1", "paddock/python:1"
HEALTHZ = {"httpGet": {"port": 8500, "path": "/healthz"}, "periodSeconds": 1, "timeoutSeconds": 5}
WAITS = ["sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 1000000 & wait $!; done"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("agent") / "state") as created:
        yield created


def sandbox(name: str, image: str, command: list[str] | None = None, **spec: Any) -> str:
    template = {"image": image, "agent": {}, **spec.pop("template", {})}
    if command:
        template["command"] = command
    body = {"template": template, "lifecycle": {"shutdownGracePeriodSeconds": 20}, **spec}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": body})


def wait_until_ready(daemon: RunningDaemon, *names: str) -> None:
    for name in names:
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", name)


def last_end(daemon: RunningDaemon, name: str) -> Mapping[str, Any]:
    last_termination: Mapping[str, Any] = daemon.get(name).get("status", {}).get("lastTermination", {})
    return last_termination


@pytest.mark.parametrize(("name", "image"), [("tiny", TINY), ("python", PYTHON)])
def test_an_agent_answers_the_daemon_beside_its_command(daemon: RunningDaemon, name: str, image: str) -> None:
    daemon.apply(sandbox(name, image, WAITS, template={"readiness": HEALTHZ}))
    wait_until_ready(daemon, f"sandbox/{name}")
    wait_for("it is attested", lambda: daemon.condition(name, "Secured").get("status") == "True", 60)
    assert daemon.paddock("attest", name).returncode == 0
    assert daemon.condition(name, "AgentCallersEnforced")["reason"] == "OtherUser"
    output = daemon.paddock("exec", name, "--", "sh", "-c", "echo $MCP_MODE $MCP_PROJECT_ID $MCP_SECURITY_LEVEL").stdout
    assert output == "sandbox default full-isolation\n"
    assert "runtime paddock-agent-" in daemon.paddock("why", name).stdout
    assert "paddock-agent" not in daemon.paddock("get", "volumes", "-A", check=False).stdout
    container = daemon.get(name)["status"]["instanceRef"]["name"]
    mounts = json.loads(docker("inspect", "--format", "{{json .Mounts}}", container))
    ((mount,), names) = ([entry for entry in mounts if entry["Type"] == way] for way in ("volume", "bind"))
    assert (mount["Destination"], mount["RW"]) == ("/.paddock", False)
    files = {entry["Destination"]: entry["RW"] for entry in names if entry["Destination"].startswith("/etc/")}
    assert files == dict.fromkeys(
        ("/etc/group", "/etc/hostname", "/etc/hosts", "/etc/passwd", "/etc/resolv.conf"), False
    )
    # Its signals reach the command, and the command's exit code is the sandbox's.
    daemon.paddock("set", "run-state", "sandbox", name, "Suspended")
    wait_for("it ended by its own code", lambda: last_end(daemon, name).get("exitCode") == 5, 60)
    assert daemon.paddock("logs", name).stdout == "up\n"
    daemon.paddock("delete", "sandbox", name, "--timeout=60s")
    assert docker("volume", "inspect", "--format", "{{.Name}}", mount["Name"]) == mount["Name"]


def test_the_end_of_the_command_or_of_the_agent_is_the_sandboxes(daemon: RunningDaemon) -> None:
    kill = "kill -9 $(grep -l '^Name:.*ld.so' /proc/[0-9]*/status | cut -d / -f 3)"
    daemon.apply(sandbox("ends", TINY, ["sh", "-c", "echo bye; exit 7"], restartPolicy="Never"))
    daemon.apply(sandbox("missing", TINY, ["no-such-program"], restartPolicy="Never"))
    daemon.apply(sandbox("killed", TINY, ["sleep", "1000000"]))
    wait_until_ready(daemon, "sandbox/killed")
    daemon.paddock("exec", "killed", "--", "sh", "-c", kill, check=False)
    wait_for("it is restarted", lambda: daemon.get("killed")["status"]["restartCount"] == 1, 90)
    wait_until_ready(daemon, "sandbox/killed")
    assert (last_end(daemon, "killed")["exitCode"], last_end(daemon, "killed")["signal"]) == (137, 9)
    for name, code, line in (("ends", 7, "bye"), ("missing", 127, "no-such-program: no such file or directory")):
        daemon.paddock("wait", "--for=condition=Finished", "--timeout=60s", f"sandbox/{name}")
        wait_for("its last lines are there", lambda name=name: last_end(daemon, name).get("logTail"), 60)
        end = last_end(daemon, name)
        assert (end["exitCode"], line in end["logTail"][-1]) == (code, True)
    daemon.paddock("delete", "sandboxes", "--all", "--timeout=60s")


def test_a_claim_gets_a_warm_agent(daemon: RunningDaemon) -> None:
    template = {"image": TINY, "agent": {}, "readiness": HEALTHZ}
    daemon.apply(
        "\n---\n".join(
            json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
            for kind, name, spec in (
                ("SandboxTemplate", "t", template),
                ("SandboxPool", "p", {"templateRef": {"name": "t"}, "warmReplicas": 1, "maxReplicas": 1}),
            )
        )
    )
    wait_until_ready(daemon, "sandboxpool/p")
    claim = {"templateRef": {"name": "t"}, "lifecycle": {"shutdownGracePeriodSeconds": 0}}
    body = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": "claimed"}, "spec": claim}
    daemon.apply(json.dumps(body))
    wait_until_ready(daemon, "sandbox/claimed")
    assert daemon.get("claimed")["status"]["launchType"] == "Warm"
    assert daemon.condition("claimed", "Outdated")["status"] == "False"
    with Paddock(f"unix://{daemon.socket}") as paddock, paddock.sandbox("claimed").connect(8500) as link:
        link.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:8500\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(link.receive, b""))
    assert (text.split()[1], b'"callers":"Paddock"' in text.replace(b" ", b"")) == (b"200", True)
    daemon.paddock("delete", "sandbox/claimed", "sandboxpool/p", "sandboxtemplate/t", "--timeout=60s")
