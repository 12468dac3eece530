"""Official clients and an agent of others inside sandboxes without a network use models through the gateway.

The clients are those that were fetched for this lane: their folder is the sandbox's workspace, read-only.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon import ROOT, RunningDaemon, running, wait_for
from tests.mcp.clients import FETCHED

pytestmark = [pytest.mark.mcp, pytest.mark.docker, pytest.mark.timeout(420)]
PACKAGES = next(iter((FETCHED / "venv" / "lib").glob("python3*/site-packages")), FETCHED)
KEY = "sk-canary-e19a"
OPENAI = """
import json
from openai import NotFoundError, OpenAI
client = OpenAI()
print(json.dumps([each.id for each in client.models.list()]))
stream = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "count"}], stream=True)
print("".join(each.choices[0].delta.content or "" for each in stream))
try:
    client.chat.completions.create(model="secret", messages=[])
except NotFoundError as error:
    print(error.code)
"""
SMOL = """
import sys
from openai import OpenAI
client, sent = OpenAI(), [{"role": "user", "content": "What is the capital of France?"}]
ask = dict(model="smol", messages=sent, max_tokens=24, temperature=0)
if sys.argv[1] == "raw":
    with client.chat.completions.with_streaming_response.create(**ask, stream=True) as answer:
        print("".join(answer.iter_text()))
else:
    made = client.chat.completions.create(**ask)
    print(made.choices[0].message.content, "|", made.usage.completion_tokens)
    stream = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    parts = list(stream)
    print("".join(each.choices[0].delta.content or "" for each in parts if each.choices), "|", len(parts))
    print(client.completions.create(model="smol", prompt="One, two, three,", max_tokens=8).choices[0].text)
"""
ANTHROPIC = """
from anthropic import Anthropic
client = Anthropic()
said = [{"role": "user", "content": "count"}]
with client.messages.stream(model="claude-tiny", max_tokens=9, messages=said) as stream:
    print("".join(stream.text_stream))
print(client.messages.create(model="claude-tiny", max_tokens=9, messages=said).usage.output_tokens)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    script = [sys.executable, str(ROOT / "tests" / "gateway" / "scripted_model.py"), "0", KEY]
    folder = tmp_path_factory.mktemp("models")
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        port = int(provider.stdout.readline())
        settings = {
            "PADDOCK_SECRETS_DIR": str(folder / "secrets"),
            "PADDOCK_PROVIDER_HOSTS": json.dumps([f"127.0.0.1:{port}"]),
            "PADDOCK_HOST_ROOTS": json.dumps([{"path": str(FETCHED)}]),
            "PADDOCK_MODELS_PORT": "0",
        }
        with running(folder / "state", **settings) as created:
            created.paddock("secret", "set", "key", "--host", f"127.0.0.1:{port}", stdin=KEY)
            url = f"http://127.0.0.1:{port}"
            common = {"url": url, "secretRef": {"name": "key"}}
            apply(created, "Provider", "openai", {"type": "OpenAI", "models": ["tiny*"], **common})
            apply(created, "Provider", "anthropic", {"type": "Anthropic", "models": ["claude-*"], **common})
            template: dict[str, Any] = {"image": "paddock/python:1", "command": ["sleep", "infinity"]}
            template |= {"env": [{"name": "PYTHONPATH", "value": "/clients"}], "workspace": {"mountPath": "/clients"}}
            template |= {"resources": {"limits": {"memory": "2Gi", "cpu": "2", "pids": 256}}}
            spec: dict[str, Any] = {
                "template": template,
                "workspace": {"hostPath": str(PACKAGES), "readOnly": True},
                "models": [{"providerRef": {"name": "openai"}}, {"providerRef": {"name": "anthropic"}}],
            }
            created.apply((ROOT / "specs" / "modelserver" / "smol.yaml").read_text())
            spec["models"].append({"modelServerRef": {"name": "smol"}})
            apply(created, "Sandbox", "clients", spec)
            created.paddock("wait", "--for=condition=ModelsReachable", "--timeout=90s", "sandbox/clients")
            yield created
        provider.kill()


def apply(daemon: RunningDaemon, kind: str, name: str, spec: dict[str, Any]) -> None:
    daemon.apply(json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}))


def python(daemon: RunningDaemon, code: str, *arguments: str) -> list[str]:
    command = ("exec", "clients", "--", "python3", "-c", code, *arguments)
    return daemon.paddock(*command, seconds=300).stdout.splitlines()


def test_the_official_openai_client_streams(daemon: RunningDaemon) -> None:
    listed, *remaining = python(daemon, OPENAI)
    assert json.loads(listed) == ["smol", "tiny", "tiny-2"]
    assert remaining == ["One two three.", "model_not_found"]


def test_the_official_anthropic_client_streams(daemon: RunningDaemon) -> None:
    assert python(daemon, ANTHROPIC) == ["One two three.", "4"]


def test_claude_code_works_in_a_sandbox_without_a_network(daemon: RunningDaemon) -> None:
    program = "/clients/claude_agent_sdk/_bundled/claude"
    assert (PACKAGES / "claude_agent_sdk" / "_bundled" / "claude").exists()
    home = ("--env", "HOME=/tmp", "--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "--env", "DISABLE_TELEMETRY=1")
    arguments = (program, "-p", "count", "--model", "claude-tiny", "--output-format", "json")
    done = daemon.paddock("exec", *home, "clients", "--", *arguments, seconds=300)
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    assert (answer["result"], answer["is_error"]) == ("One two three.", False)
    assert Path(f"/proc/{daemon.process.pid}").exists()


@pytest.mark.timeout(900)
def test_agents_of_a_workflow_work_with_a_real_model(daemon: RunningDaemon, tmp_path: Path) -> None:
    """The workflow of the examples, with questions for which this model needs one sentence. It calls no tools.

    Such a small model may ramble, which ends a run at its bound of tokens: another run is made then.
    """
    document = yaml.safe_load((ROOT / "specs" / "workflow" / "agents.yaml").read_text())
    agents = [stage["agent"] for stage in document["spec"]["stages"] if "agent" in stage]
    capital = "What is the capital of $(parameters.task)?"
    for agent, question in zip(
        agents, (capital, "Is this true? $(stages.planning.outputs.answer)", capital), strict=True
    ):
        agent |= {"provider": "smol", "model": "smol", "tools": [], "instructions": question, "maxTokens": 250}
    check = next(stage for stage in document["spec"]["stages"] if stage["name"] == "check")["exec"]
    check["env"] = [{"name": "ANSWER", "value": "$(stages.coding.outputs.answer)"}]
    check["commands"] = ["mkdir dist", 'printf %s "$ANSWER" > dist/result', *check["commands"]]
    daemon.apply(json.dumps(document))
    for number in range(12):
        name, output = f"tiny-{number}", tmp_path / str(number)
        arguments = ("--name", name, "-p", "task=France", "--wait", "--output", str(output))
        daemon.paddock("workflow", "run", "feature", *arguments, check=False, seconds=600)
        run = json.loads(daemon.paddock("get", "workflowrun", name, "-o", "json").stdout)["status"]
        if run["phase"] == "Succeeded":
            break
        assert [stage["reason"] for stage in run["stages"] if stage["state"] == "Failed"] == ["MaxTokens"], run
    assert [(stage["name"], stage["state"]) for stage in run["stages"]] == [
        (stage["name"], "Succeeded") for stage in document["spec"]["stages"]
    ]
    answers = {stage["name"]: stage["outputs"][0]["value"] for stage in run["stages"] if stage.get("outputs")}
    assert len(answers) == len(agents) == 3
    assert all(map(str.strip, answers.values())), "it need not be right: it is a very small model"
    assert (output / "output" / "result").read_text() == answers["coding"]
    log = daemon.paddock("workflow", "logs", name, "coding").stdout
    assert answers["planning"].strip()[:40] in log, "its instructions have the answer of the stage before"
    assert " tokens" in next(stage["message"] for stage in run["stages"] if stage["name"] == "planning")


def test_a_real_model_answers_sleeps_and_wakes(daemon: RunningDaemon) -> None:
    content, streamed, completed = python(daemon, SMOL, "whole")
    text, _, tokens = content.rpartition(" | ")
    assert "Paris" in text
    assert streamed.rpartition(" | ")[0] == text
    assert int(streamed.rpartition(" | ")[2]) > 3
    assert 0 < int(tokens) <= 24
    assert completed.strip()
    daemon.paddock("patch", "modelserver/smol", "-p", '{"spec": {"lifecycle": {"idleTimeoutSeconds": 2}}}')
    wait_for("it is idle", lambda: ready(daemon, "smol") == "Idle", 120)
    raw = "\n".join(python(daemon, SMOL, "raw"))
    assert ": modelserver `smol` is starting" in raw
    assert '"finish_reason":"stop"' in raw or '"finish_reason":"length"' in raw
    assert raw.rstrip().endswith("data: [DONE]")


def ready(daemon: RunningDaemon, name: str) -> str:
    conditions = daemon.object("modelservers", name).get("status", {}).get("conditions", [])
    return str(next((condition["reason"] for condition in conditions if condition["type"] == "Ready"), ""))
