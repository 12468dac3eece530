"""deploy/prometheus: rules that name only what there is, and whose tests would notice if any of them were wrong."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promql import mistakes

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
PROMTOOL = shutil.which("promtool")
RULES = {
    file.name: [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
    for file in sorted(FOLDER.glob("*.rules.yml"))
}
EVERY = [rule for rules in RULES.values() for rule in rules]
ALERTS = [rule for rule in EVERY if "alert" in rule]
RECORDINGS = {rule["record"]: rule["expr"] for rule in EVERY if "record" in rule}
TESTS = {file.name: yaml.safe_load(file.read_text()) for file in sorted((FOLDER / "tests").glob("*.yml"))}
ALWAYS, NEVER = "vector(1)", "vector(1) > 2"
with_promtool = pytest.mark.prometheus


def name_of(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def promtool(*arguments: str, check: bool = True) -> str:
    assert PROMTOOL is not None
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # in the order in which they were written
    done = subprocess.run([PROMTOOL, *arguments], text=True, timeout=110, check=False, **both)
    assert not check or done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("rule", EVERY, ids=name_of)
def test_a_rule_names_only_what_is_in_the_catalogue(rule: dict[str, Any]) -> None:
    assert list(mistakes(rule["expr"], RECORDINGS)) == []


def test_mistakes_would_be_found() -> None:
    found = [
        *mistakes("rate(paddock_container_pids[5m])", {}),
        *mistakes('paddock_container_pids{pod="x"}', {}),
        *mistakes("sum by (pod) (paddock_docker_up)", {}),
        *mistakes("paddock_docker_uptime > 0", {}),
        *mistakes("instance:paddock_nothing:sum > 1", {}),
        *mistakes("deriv(paddock_container_oom_kills_total[5m])", {}),
    ]
    assert found == [
        "paddock_container_pids is a gauge: no rate() of it",
        "paddock_container_pids has no label pod",
        "no metric of it has a label pod",
        "paddock_docker_uptime is not in the catalogue",
        "no rule records instance:paddock_nothing:sum",
        "paddock_container_oom_kills_total is a counter: rate() is for it",
    ]


def test_names_are_given_once() -> None:
    assert len({name_of(each) for each in EVERY}) == len(EVERY)


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_an_alert_says_how_bad_it_is_what_happened_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    told = dict(alert["annotations"])
    assert told.pop("runbook_url") == f"deploy/prometheus/README.md#{alert['alert'].lower()}"
    assert told.keys() == {"summary", "description"}
    assert all(text.endswith(".") for text in told.values())


def test_every_alert_has_a_runbook() -> None:
    page = (FOLDER / "README.md").read_text().partition("\n## Runbooks\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [each["alert"] for each in ALERTS]


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_an_alert_has_a_firing_and_a_quiet_case(alert: dict[str, Any]) -> None:
    cases = [
        bool(case["exp_alerts"])
        for tests in TESTS.values()
        for test in tests["tests"]
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == alert["alert"]
    ]
    assert set(cases) == {True, False}


@with_promtool
def test_promtool_finds_nothing_wrong() -> None:
    promtool("check", "config", str(FOLDER / "prometheus.yml"))
    promtool("check", "config", "--syntax-only", str(FOLDER / "fleet.yml"))  # which names files of the operator's
    promtool("test", "rules", *(str(FOLDER / "tests" / name) for name in TESTS))


@with_promtool
def test_every_expression_matters(tmp_path: Path) -> None:
    """Each one replaced, in a world of its own, by what is never true and by what always is: the tests must fail."""
    files: dict[str, str] = {}
    for number, (rule, other) in enumerate((rule, other) for rule in EVERY for other in (NEVER, ALWAYS)):
        files |= _mutant(tmp_path / f"m{number}", rule, other)
    told = promtool("test", "rules", *files, check=False)
    verdicts = re.findall(r"^Unit Testing:\s+(\S+)\n\s+(SUCCESS|FAILED)", told, re.MULTILINE)
    assert len(verdicts) == len(files)
    failed = {files[file] for file, verdict in verdicts if verdict == "FAILED"}
    assert sorted(set(files.values()) - failed) == [], "the tests do not notice these"


def _mutant(folder: Path, rule: dict[str, Any], other: str) -> dict[str, str]:
    """One expression replaced, and the tests that are about it: their files, and what was changed.

    Of the other rules only those that record are kept, for it may need them: all fifty would take minutes. They are
    written as JSON, which YAML includes and which takes a tenth of the time.
    """
    (folder / "tests").mkdir(parents=True)
    for name, rules in RULES.items():
        changed = [
            {**each, "expr": other} if each is rule else each for each in rules if each is rule or "record" in each
        ]
        (folder / name).write_text(json.dumps({"groups": [{"name": "all", "rules": changed}]}))
    about = name_of(rule)
    kept = [
        {**whole, "tests": tests}
        for whole in TESTS.values()
        if (tests := [test for test in whole["tests"] if about in json.dumps(test)])
    ]
    files = {}
    for number, whole in enumerate(kept):
        file = folder / "tests" / f"{number}.yml"
        file.write_text(json.dumps(whole))
        files[str(file)] = f"{about} = {other}"
    return files
