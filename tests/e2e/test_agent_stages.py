"""Agents that plan, write and test on a real engine with a scripted provider; the daemon is killed meanwhile."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon import ROOT, RunningDaemon, remove_containers, start_daemon, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(420)]
KEY = "sk-canary-77aa01"
SCRIPTS: dict[str, list[Any]] = {
    "planning": [
        {"calls": [["file_list", {"path": "/workspace"}], ["exec", {"command": "touch /workspace/no"}]]},
        "do it",
    ],
    "coding": [
        {"calls": [["exec", {"command": "echo run >> runs; while [ ! -e go ]; do sleep 0.2; done; cat runs"}]]},
        {"calls": [["file_write", {"path": "/workspace/dist/result", "content": "made\n"}]]},
        "written",
    ],
    "testing": [{"calls": [["exec", {"command": "cat /workspace/dist/result"}]]}, "it works"],
}


@pytest.fixture
def provider() -> Iterator[int]:
    command = [sys.executable, str(ROOT / "tests" / "gateway" / "scripted_model.py"), "0", KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def prepare(daemon: RunningDaemon, provider: int) -> None:
    """Apply the workflow of the examples, with a scripted model and a budget."""
    daemon.paddock("secret", "set", "anthropic-key", "--host", f"127.0.0.1:{provider}", stdin=f"{KEY}\n")
    source = {"type": "Anthropic", "url": f"http://127.0.0.1:{provider}/v1", "secretRef": {"name": "anthropic-key"}}
    document = yaml.safe_load((ROOT / "specs" / "workflow" / "agents.yaml").read_text())
    for stage in document["spec"]["stages"]:
        if script := SCRIPTS.get(stage["name"]):
            stage["agent"] |= {"model": "agent", "instructions": json.dumps(script)}
    base = {"apiVersion": document["apiVersion"], "kind": "Provider", "metadata": {"name": "anthropic"}}
    daemon.apply(json.dumps({**base, "spec": {**source, "models": ["agent"], "limits": {"concurrent": 1}}}))
    daemon.apply(json.dumps(document))


def status(daemon: RunningDaemon, name: str) -> dict[str, Any]:
    return dict(daemon.object("workflowruns", name).get("status", {}))


def seen(provider: int) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{provider}/seen", timeout=60) as answer:
        return list(json.loads(answer.read())["seen"])


def test_agents_work_through_a_killed_daemon(tmp_path: Path, provider: int) -> None:
    settings = {
        "PADDOCK_SECRETS_DIR": str(tmp_path / "secrets"),
        "PADDOCK_PROVIDER_HOSTS": json.dumps([f"127.0.0.1:{provider}"]),
        "PADDOCK_MODELS_PORT": "0",
        "PADDOCK_LOG_LEVEL": "debug",
    }
    daemon = start_daemon(tmp_path / "state", **settings)
    try:
        prepare(daemon, provider)
        daemon.paddock("workflow", "run", "feature", "--name", "r", "-p", "task=x", "--keep-sandbox", "Always")

        def sandbox() -> str:
            return str(status(daemon, "r").get("sandboxRef", {}).get("name", ""))

        def begun() -> bool:
            return (
                bool(sandbox())
                and daemon.paddock("exec", sandbox(), "--", "test", "-e", "/workspace/runs", check=False).returncode
                == 0
            )

        wait_for("the first command of the second agent", begun, 120)
        daemon.kill()
        daemon = start_daemon(tmp_path / "state", **settings)
        go = ("exec", sandbox(), "--", "touch", "/workspace/go")
        wait_for("its first observation", lambda: daemon.paddock(*go, check=False).returncode == 0, 60)
        wait_for("its end", lambda: status(daemon, "r").get("phase") in ("Succeeded", "Failed"), 120)
        document = status(daemon, "r")
        assert [stage["state"] for stage in document["stages"]] == ["Succeeded"] * 5, document
        assert daemon.paddock("exec", sandbox(), "--", "cat", "/workspace/runs").stdout == "run\n"
        assert daemon.paddock("exec", sandbox(), "--", "test", "-e", "/workspace/no", check=False).returncode == 1
        turns = [entry for entry in seen(provider) if entry["model"] == "agent"]
        assert len(turns) == sum(map(len, SCRIPTS.values())), "no turn was lost or asked twice"
        assert {turn["path"] for turn in turns} == {"/v1/messages"}
        assert turns[-1]["tools"] == ["file_read", "file_write", "exec"]
        log = daemon.paddock("workflow", "logs", "r", "coding").stdout
        assert "[tool exec] exit code 0\n" in log
        assert log.endswith("[assistant] written\n")
        out = tmp_path / "out"
        daemon.paddock("workflow", "artifacts", "r", "--output", str(out))
        assert (out / "output" / "result").read_text() == "made\n"
        files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
        assert [file for file in files if KEY.encode() in file.read_bytes()] == []
        assert [name for name in daemon.log if KEY in name] == []
    finally:
        daemon.stop()
        remove_containers(daemon.instance_id())
