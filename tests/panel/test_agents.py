"""Pages of what agents use: models with their budgets, workflows and their runs, plugins, projects."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.daemon import ROOT, RunningDaemon, running, wait_for
from tests.e2e.test_models import CLIENT, free_port
from tests.panel.browser import WAIT_MS, sandbox

pytestmark = [pytest.mark.panel, pytest.mark.docker, pytest.mark.timeout(420)]
expect.set_options(timeout=WAIT_MS)
KEY = "sk-canary-91f2"
HOSTILE = "<img src=x onerror=alert(1)>"
WORKFLOW = {
    "parameters": [{"name": "ref", "default": "main", "description": "what to build"}],
    "sandbox": {
        "template": {"image": "paddock/python:1", "workspace": {}},
        "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}},
    },
    "stages": [
        {
            "name": "make",
            "exec": {
                "commands": ["mkdir -p dist", f"echo '{HOSTILE}'", 'echo "built $REF"; echo "$REF" > dist/result.txt'],
                "env": [{"name": "REF", "value": "$(parameters.ref)"}],
                "workingDir": "/workspace",
            },
            "outputs": [{"name": "result", "path": "/workspace/dist/result.txt"}],
        },
        {"name": "results", "copy": {"from": "/workspace/dist", "artifact": "dist"}},
        {"name": "last", "exec": {"commands": ["while [ ! -e /tmp/go ]; do sleep 0.2; done; echo went on"]}},
    ],
    "finally": [{"name": "tidy", "exec": {"commands": ["echo tidied"]}}],
}
PLUGIN = {
    "version": "1.0.0",
    "type": "Tool",
    "permissions": [{"secret": "key"}, {"network": ["unused.example.org"]}],
    "configuration": {"memory": {"type": "string", "default": "64Mi", "description": "memory limit of each"}},
    "objects": [
        {
            "kind": "SandboxTemplate",
            "metadata": {"name": "with-key"},
            "spec": {
                "image": "paddock/python:1",
                "secrets": [{"name": "key", "mountPath": "/run/secrets/key"}],
                "resources": {"limits": {"memory": "$(config.memory)"}},
            },
        }
    ],
}


def document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


@pytest.fixture(scope="module")
def provider() -> Iterator[int]:
    command = [sys.executable, str(ROOT / "tests/gateway/scripted_model.py"), "0", KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, provider: int) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("agents")
    settings = {
        "PADDOCK_SECRETS_DIR": str(folder / "secrets"),
        "PADDOCK_PROVIDER_HOSTS": json.dumps([f"127.0.0.1:{provider}"]),
        "PADDOCK_MODELS_PORT": str(free_port()),
    }
    with running(folder / "state", **settings) as created:
        created.paddock("secret", "set", "key", "--host", f"127.0.0.1:{provider}", stdin=f"{KEY}\n")
        yield created


def show(page: Page, path: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}#/{path}")


def test_models_show_budgets_and_users(daemon: RunningDaemon, page: Page, provider: int) -> None:
    limits = {"requestsPerMinute": 50, "tokensPerDay": 1000}
    url = f"http://127.0.0.1:{provider}/v1"
    spec = {"type": "OpenAI", "url": url, "secretRef": {"name": "key"}, "models": ["tiny*"], "limits": limits}
    daemon.apply(document("Provider", "local", spec))
    daemon.apply(document("Provider", "keyless", {**spec, "secretRef": {"name": "missing"}, "limits": {}}))
    daemon.apply(sandbox("asking", models=[{"providerRef": {"name": "local"}}]))
    wait_for("it listens", lambda: daemon.condition("asking", "ModelsReachable").get("reason") == "Listening", 90)
    done = daemon.paddock("exec", "asking", "--", "python3", "-c", CLIENT, "whole", "tiny", "tiny-2")
    assert [line[:3] for line in done.stdout.splitlines()] == ["200", "200"]
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Models").click()
    row = page.get_by_role("row", name="local")
    expect(row).to_contain_text("Answering")
    expect(row).to_contain_text("2 / 50")
    expect(page.get_by_role("row", name="keyless")).to_contain_text("SecretMissing")
    row.get_by_role("link", name="local").click()
    expect(page.locator(".head .status")).to_contain_text("Answering")
    budget = page.get_by_role("region", name="Budget")
    expect(budget).to_contain_text("/ 1,000")
    locator = budget.locator(".facts > div", has_text="Tokens left").locator("dd")
    wait_for("tokens are counted", lambda: 0 < int(locator.inner_text()) < 1000, 60)
    users = page.get_by_role("region", name="Used by")
    expect(users.get_by_role("row", name="asking")).to_contain_text("Listening")
    expect(users.get_by_role("row", name="asking").get_by_role("cell").nth(2)).to_have_text("2")  # from the audit log
    daemon.paddock("patch", "provider", "local", "-p", json.dumps({"spec": {"limits": {"requestsPerMinute": 2}}}))
    expect(budget).to_contain_text("/ 2")
    users.get_by_role("link", name="asking").click()
    expect(page.get_by_role("heading", name="asking", exact=True)).to_be_visible()


def test_a_run_is_started_followed_and_downloaded(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(document("Workflow", "build", WORKFLOW))
    show(page, "workflows/default/build")
    expect(page.get_by_role("region", name="Stages")).to_contain_text("/workspace/dist as dist")
    expect(page.get_by_role("region", name="Parameters")).to_contain_text("what to build")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("ref").fill("v<b>1</b>")
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="build-r")).to_be_visible()
    run = page.get_by_role("heading", level=1).inner_text()
    stages = page.get_by_role("region", name="Stages")
    make = stages.get_by_role("listitem").filter(has_text="Log of make")
    expect(make.locator(".status")).to_contain_text("Succeeded")
    expect(make.locator("time")).to_contain_text("s")
    expect(make.get_by_label("Last lines of make")).to_contain_text(f"{HOSTILE}\nbuilt v<b>1</b>")
    expect(make).to_contain_text("result")
    last = stages.get_by_role("listitem").filter(has_text="Log of last")
    expect(last.locator(".status")).to_contain_text("Running")
    expect(page.locator(".head .status")).to_contain_text("Running")
    page.get_by_role("region", name="Run", exact=True).get_by_role("link", name=run[:30]).click()
    expect(page.get_by_role("region", name="Why it is so")).to_be_visible()
    sandbox = page.get_by_role("heading", level=1).inner_text()
    daemon.paddock("exec", sandbox, "--", "touch", "/tmp/go")
    show(page, f"workflowruns/default/{run}")
    expect(page.locator(".head .status")).to_contain_text("Succeeded")
    expect(stages).to_contain_text("4 of 4 done")
    last.get_by_role("button", name="Log of last").click()
    expect(last.get_by_label("Log of last", exact=True).last).to_contain_text("went on")
    artifacts = page.get_by_role("region", name="Artifacts")
    artifacts.get_by_text("1", exact=True).click()
    expect(artifacts.get_by_text("result.txt")).to_be_visible()
    with page.expect_download() as download:
        artifacts.get_by_role("button", name="Download dist").click()
    with tarfile.open(Path(download.value.path())) as archive:
        (name,) = [getname for getname in archive.getnames() if getname.endswith("result.txt")]
        content = archive.extractfile(name)
        assert content is not None
        assert content.read() == b"v<b>1</b>\n"
    page.get_by_role("link", name="build", exact=True).click()
    expect(page.get_by_role("region", name="Runs")).to_contain_text("Succeeded")
    expect(page.get_by_role("region", name="Runs")).to_contain_text("4/4")


def test_a_run_is_cancelled(daemon: RunningDaemon, page: Page) -> None:
    endless = {**WORKFLOW, "stages": [{"name": "wait", "exec": {"commands": ["echo waiting; sleep 3600"]}}]}
    daemon.apply(document("WorkflowRun", "endless", {"workflow": endless}))
    show(page, "workflowruns/default/endless")
    wait = page.get_by_role("region", name="Stages").get_by_role("listitem").filter(has_text="Log of wait")
    expect(wait.get_by_label("Last lines of wait")).to_contain_text("waiting")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".head .status")).to_contain_text("Cancelled")
    expect(wait.locator(".status")).to_contain_text("Cancelled")
    tidy = page.get_by_role("region", name="Stages").get_by_role("listitem").filter(has_text="Log of tidy")
    expect(tidy.get_by_label("Last lines of tidy")).to_contain_text("tidied")


def test_transcript_of_an_agent_stage_is_text(daemon: RunningDaemon, page: Page) -> None:
    agent = {"provider": "nobody", "model": "x", "instructions": f"look at {HOSTILE}", "tools": ["exec"]}
    talk = {**WORKFLOW, "stages": [{"name": "think", "agent": agent}], "finally": []}
    daemon.apply(document("WorkflowRun", "talking", {"workflow": talk}))
    show(page, "workflowruns/default/talking")
    expect(page.locator(".head .status")).to_contain_text("Failed")
    uid = json.loads(daemon.paddock("get", "workflowrun", "talking", "-o", "json").stdout)["metadata"]["uid"]
    calls = [{"id": "call-0-0", "name": "exec", "arguments": {"command": f"echo '{HOSTILE}'"}}]
    lines = [  # as an agent's turns are kept
        {"role": "user", "text": f"look at {HOSTILE}"},
        {"role": "assistant", "text": f"so {HOSTILE}", "calls": calls, "promptTokens": 7, "completionTokens": 3},
        {"role": "tool", "callId": "call-0-0", "tool": "exec", "text": "exit code 0\nred"},
    ]
    file = daemon.folder / f"runs/files/default/{uid}/think.1.jsonl"
    assert len(file.read_text().splitlines()) == 1
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    stage = page.get_by_role("region", name="Stages").get_by_role("listitem").filter(has_text="Log of think")
    stage.get_by_role("button", name="Transcript").click()
    transcript = stage.get_by_role("list", name="Transcript of think")
    expect(transcript.get_by_role("listitem")).to_have_count(3)
    expect(transcript).to_contain_text(f"look at {HOSTILE}")
    expect(transcript).to_contain_text("exit code 0\nred")
    expect(stage).to_contain_text("1 turns, 10 tokens")
    assert page.locator("main img").count() == 0


def test_permissions_of_a_plugin_are_granted(daemon: RunningDaemon, page: Page) -> None:
    daemon.apply(document("Plugin", "keyed", PLUGIN))
    show(page, "plugins/default/keyed")
    permissions = page.get_by_role("region", name="Permissions")
    expect(page.locator(".head .status")).to_contain_text("PermissionsNotGranted")
    row = permissions.get_by_role("row", name="Secret key")
    expect(row).to_contain_text("missing")
    expect(permissions.get_by_role("row", name="unused.example.org").get_by_role("cell").nth(1)).to_have_text("no")
    expect(page.get_by_role("region", name="Settings")).to_contain_text("memory limit of each")
    page.get_by_role("button", name="Grant permissions").click()
    expect(page.get_by_role("dialog")).to_contain_text("unused.example.org")
    page.get_by_role("dialog").get_by_role("button", name="Grant", exact=True).click()
    expect(page.locator(".head .status")).to_contain_text("Ready")
    expect(row).not_to_contain_text("missing")
    expect(page.get_by_role("button", name="Grant permissions")).to_have_count(0)
    page.get_by_role("region", name="Objects").get_by_role("link", name="with-key").click()
    expect(page.get_by_role("heading", name="with-key", exact=True)).to_be_visible()


def test_projects_are_opened_and_closed(daemon: RunningDaemon, page: Page) -> None:
    template = {"image": "paddock/python:1", "command": ["sleep", "infinity"]}
    daemon.apply(document("SandboxTemplate", "small", {**template, "resources": {"limits": {"memory": "64Mi"}}}))
    page.get_by_role("navigation", name="Kinds").get_by_role("link", name="Projects").click()
    page.get_by_label("Template").select_option("small")
    page.get_by_label("Project", exact=True).fill("my-app")
    page.get_by_role("button", name="Open in default").click()
    row = page.get_by_role("row", name="my-app")
    expect(row).to_contain_text("Running")
    expect(row).to_contain_text("small")
    row.get_by_role("button", name="Close my-app").click()
    expect(row).to_contain_text("Suspended")
    row.get_by_role("button", name="Open my-app").click()
    expect(row).to_contain_text("Running")
