"""deploy/prometheus: rules that name only what there is, and whose tests would notice if any of them were wrong."""

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon import wait_for
from tests.promql import mistakes

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
PROMTOOL, ALERTMANAGER = shutil.which("promtool"), shutil.which("prometheus-alertmanager")
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
    names = [
        *mistakes("rate(paddock_container_pids[5m])", {}),
        *mistakes('paddock_container_pids{pod="x"}', {}),
        *mistakes("sum by (pod) (paddock_docker_up)", {}),
        *mistakes("paddock_docker_uptime > 0", {}),
        *mistakes("instance:paddock_nothing:sum > 1", {}),
        *mistakes("deriv(paddock_container_oom_kills_total[5m])", {}),
    ]
    assert names == [
        "paddock_container_pids is a gauge: no rate() of it",
        "paddock_container_pids has no label pod",
        "no metric of it has a label pod",
        "paddock_docker_uptime is not in the catalogue",
        "no rule records instance:paddock_nothing:sum",
        "paddock_container_oom_kills_total is a counter: rate() is for it",
    ]


def test_names_are_given_once() -> None:
    assert len({name_of(entry) for entry in EVERY}) == len(EVERY)


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_an_alert_says_how_bad_it_is_what_happened_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    reported = dict(alert["annotations"])
    page = '{{ or $externalLabels.runbooks "deploy/prometheus/README.md" }}'
    assert reported.pop("runbook_url") == f"{page}#{alert['alert'].lower()}"
    assert reported.keys() == {"summary", "description"}
    assert all(text.endswith(".") for text in reported.values())


def test_every_alert_has_a_runbook() -> None:
    page = (FOLDER / "README.md").read_text().partition("\n## Runbooks\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [alert["alert"] for alert in ALERTS]


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
def test_a_setting_makes_links_of_the_runbooks(tmp_path: Path) -> None:
    """The external label `runbooks` is the address of a copy of the page."""
    case = next(test for test in TESTS["controller.alerts.test.yml"]["tests"] if test["name"] == "PaddockDown fires")
    url = "https://docs.example.org/paddock/runbooks"
    [alert] = case["alert_rule_test"][0]["exp_alerts"]
    annotations = {**alert["exp_annotations"], "runbook_url": f"{url}#paddockdown"}
    alerts = [{**alert, "exp_annotations": annotations}]
    changed = {**case, "external_labels": {"runbooks": url}}
    changed["alert_rule_test"] = [{**case["alert_rule_test"][0], "exp_alerts": alerts}]
    _run_tests(tmp_path, [changed])


@with_promtool
def test_no_alert_outlives_its_object(tmp_path: Path) -> None:
    """Two minutes after the cause of a firing case has gone, none of its alerts is there."""
    cases = []
    for tests in TESTS.values():
        for case in tests["tests"]:
            firing = [entry for entry in case.get("alert_rule_test", ()) if entry["exp_alerts"]]
            objects = [
                input_series
                for input_series in case["input_series"]
                if "sandbox=" in input_series["series"] or "pool=" in input_series["series"]
            ]
            if not firing or not objects:
                continue
            ends = [f"{input_series['values']} stale" for input_series in case["input_series"]]
            series = [
                {**input_series, "values": end} for input_series, end in zip(case["input_series"], ends, strict=True)
            ]
            last = max(_samples(input_series["values"]) for input_series in case["input_series"])
            assert case["interval"] == "1m"
            documents = [{**entry, "eval_time": f"{last + 2}m", "exp_alerts": []} for entry in firing]
            cases.append({**case, "input_series": series, "alert_rule_test": documents})
    assert len(cases) > 10
    _run_tests(tmp_path, cases)


def _samples(values: str) -> int:
    """Return the number of samples of a series in promtool's notation: `0+1x80` has 81, `_x5` has 5."""
    return sum(
        int(token.rpartition("x")[2]) + (not token.startswith("_")) if "x" in token else 1 for token in values.split()
    )


def _run_tests(folder: Path, cases: list[dict[str, Any]]) -> None:
    rules = [str(FOLDER / name) for name in RULES]
    file = folder / "cases.yml"
    file.write_text(json.dumps({"rule_files": rules, "evaluation_interval": "1m", "tests": cases}))
    promtool("test", "rules", str(file))


@with_promtool
def test_every_expression_matters(tmp_path: Path) -> None:
    """Each one replaced, in a file of its own, by what is never true and by what always is: the tests must fail."""
    files: dict[str, str] = {}
    for number, (rule, second) in enumerate((rule, text) for rule in EVERY for text in (NEVER, ALWAYS)):
        files |= _mutant(tmp_path / f"m{number}", rule, second)
    message = promtool("test", "rules", *files, check=False)
    verdicts = re.findall(r"^Unit Testing:\s+(\S+)\n\s+(SUCCESS|FAILED)", message, re.MULTILINE)
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
            {**entry, "expr": other} if entry is rule else entry
            for entry in rules
            if entry is rule or "record" in entry
        ]
        (folder / name).write_text(json.dumps({"groups": [{"name": "all", "rules": changed}]}))
    about = name_of(rule)
    documents = [
        {**content, "tests": tests}
        for content in TESTS.values()
        if (tests := [test for test in content["tests"] if about in json.dumps(test)])
    ]
    files = {}
    for number, document in enumerate(documents):
        file = folder / "tests" / f"{number}.yml"
        file.write_text(json.dumps(document))
        files[str(file)] = f"{about} = {other}"
    return files


INHIBITED = (  # the alerts of one outage, and the one that a person hears of
    ("PaddockDockerDown", ("PaddockDockerErrors", "PaddockNoFullLook", "SandboxNotReady")),
    ("PaddockStoreDown", ("PaddockStoreErrors", "PaddockNotActing", "SandboxChangePending")),
    ("SandboxOomKilled", ("SandboxCrashLooping", "SandboxRestartsOften", "SandboxNotReady")),
    ("SandboxImagePullFailed", ("SandboxNotReady", "SandboxChangePending")),
)


def test_alertmanager_names_only_alerts_that_there_are() -> None:
    config = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())
    matchers = [
        matcher
        for rule in config["inhibit_rules"]
        for matcher in (*rule["source_matchers"], *rule["target_matchers"])
        if ".+" not in matcher
    ]
    names = {name for matcher in matchers for name in re.findall(r"\b[A-Z]\w+", matcher)}
    assert sorted(names - {name_of(alert) for alert in ALERTS}) == []


@with_promtool
@pytest.mark.skipif(ALERTMANAGER is None or os.geteuid() != 0, reason="needs root, and Debian's Alertmanager")
def test_one_cause_is_one_alert(tmp_path: Path) -> None:
    """Sent to a real Alertmanager: what follows is inhibited on that host and in that sandbox, and nowhere else."""
    config = str(FOLDER / "alertmanager.yml")
    subprocess.run(["amtool", "check-config", config], capture_output=True, timeout=60, check=True)
    with alertmanager(config, tmp_path) as url:
        for number, (cause, effects) in enumerate(INHIBITED):
            send(url, [labels(cause, f"{number}"), *(labels(effect, f"{number}") for effect in effects)])
            send(url, [labels(effect, f"{number}-{effect}") for effect in effects])  # each in a place of its own
        count = sum(len(effects) for _, effects in INHIBITED)
        wait_for("the effects are inhibited", lambda: len(states(url)["suppressed"]) == count)
        places = {place for _, place in states(url)["suppressed"]}
        assert places == {f"host-{number}" for number in range(len(INHIBITED))}
        active = states(url)["active"]
        assert sorted(name for name, place in active if place in places) == sorted(cause for cause, _ in INHIBITED)
        assert len([name for name, place in active if place not in places]) == count


def labels(alert: str, place: str) -> dict[str, str]:
    [severity] = {entry["labels"]["severity"] for entry in ALERTS if entry["alert"] == alert}
    identity = {"job": f"job-{place}", "instance": f"host-{place}", "namespace": "default", "sandbox": f"box-{place}"}
    return {"alertname": alert, "severity": severity, **identity}


@contextmanager
def alertmanager(config: str, folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    assert ALERTMANAGER is not None
    # Debian's looks for its templates in /usr/share, though it was only unpacked: it gets a view with them.
    share = Path(ALERTMANAGER).parents[1] / "share"
    view = 'mount -t overlay overlay -o "lowerdir=$0:/usr/share" /usr/share && exec "$@"'
    within = [] if share == Path("/usr/share") else ["unshare", "--mount", "sh", "-c", view, str(share)]
    command = [*within, ALERTMANAGER, f"--config.file={config}", f"--storage.path={folder}"]
    command += [f"--web.listen-address={address}", "--cluster.listen-address="]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            url = f"http://{address}/api/v2"
            wait_for("Alertmanager is ready", lambda: ready(f"http://{address}/-/ready"), 30)
            yield url
        finally:
            process.terminate()


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def send(url: str, alerts: list[dict[str, str]]) -> None:
    body = json.dumps([{"labels": alert} for alert in alerts]).encode()
    request = urllib.request.Request(f"{url}/alerts", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def states(url: str) -> dict[str, set[tuple[str, str]]]:
    """Return the alerts (name, instance) by their state."""
    with urllib.request.urlopen(f"{url}/alerts", timeout=10) as response:
        alerts = json.load(response)
    by_state: dict[str, set[tuple[str, str]]] = {"active": set(), "suppressed": set(), "unprocessed": set()}
    for alert in alerts:
        by_state[alert["status"]["state"]].add((alert["labels"]["alertname"], alert["labels"]["instance"]))
    return by_state
