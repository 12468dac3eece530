"""deploy/github-ci.yml: what it calls exists, actions are pinned by commit, and it has no secrets."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import CHECKOUT

TEXT = (CHECKOUT / "deploy" / "github-ci.yml").read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("step", [each for each in STEPS if "run" in each], ids=lambda each: each["run"][:40])
def test_commands_exist(step: dict[str, Any]) -> None:
    command = step["run"].removeprefix('sudo env PATH="$PATH" CI=true ')
    assert "${{" not in command, "an expression in a command is an injection"
    program, *words = command.split()
    if program == "make":
        done = subprocess.run(["make", "-n", words[0]], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        assert (CHECKOUT / program).stat().st_mode & 0o111


def test_actions_are_pinned_by_commit_and_named_by_release() -> None:
    uses = [line.split("uses:")[1].strip() for line in TEXT.splitlines() if "uses:" in line]
    assert len(uses) == sum("uses" in each for each in STEPS) > 0
    for each in uses:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each
    one_pin: dict[str, str] = {}
    for each in uses:
        name, _, pin = each.partition("@")
        assert one_pin.setdefault(name, pin) == pin, name


def test_it_has_no_secrets_and_few_permissions() -> None:
    assert "secrets." not in TEXT
    assert WORKFLOW["permissions"] == {"contents": "read"}
    writes = {
        (name, scope)
        for name, job in WORKFLOW["jobs"].items()
        for scope, level in job.get("permissions", {}).items()
        if level == "write"
    }
    assert writes == {("supply-chain", "security-events")}
    assert all(
        each["with"]["persist-credentials"] is False for each in STEPS if "actions/checkout" in each.get("uses", "")
    )
    assert all("timeout-minutes" in job for job in WORKFLOW["jobs"].values())
    assert "pull_request_target" not in TEXT


def test_the_audit_is_weekly_and_the_bills_are_artifacts() -> None:
    triggers = WORKFLOW[True]  # YAML 1.1 reads `on` so
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", triggers["schedule"][0]["cron"])
    job = WORKFLOW["jobs"]["supply-chain"]
    assert "if" not in job
    written, kept, audited = (
        next(each for each in job["steps"] if words in str(each))
        for words in ("make sbom", "upload-artifact", "make audit")
    )
    assert re.search(r"--folder (\w+)", written["run"])[1] == kept["with"]["path"].split("/")[0]  # type: ignore[index]
    assert audited["continue-on-error"] == "${{ github.event_name != 'schedule' }}"
