"""Commands, flags and fields as kubectl's and docker's users write them."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.cli.text.progress import Waiting, pulls_shown
from controller.kinds.runtime.images import ImagePull
from controller.version import VERSION
from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack

Spec = Callable[..., str]
TEMPLATE = "---\nkind: SandboxTemplate\nmetadata: {name: python}\nspec: {image: a}\napiVersion: paddock/v1alpha1\n"


def test_get_all_prints_kinds_in_front_of_names(paddock: Run, served: ApiStack) -> None:
    assert paddock("get", "all").stderr == "No resources found in default namespace.\n"
    served.apply(QUICKSTART + TEMPLATE)
    output = paddock("get", "all").stdout
    assert "sandbox.paddock/quickstart" in output
    assert "sandboxtemplate.paddock/python" in output
    assert {entry["kind"] for entry in json.loads(paddock("get", "all", "-o", "json").stdout)["items"]} == {
        "Sandbox",
        "SandboxTemplate",
    }


def test_label_columns(paddock: Run, served: ApiStack) -> None:
    served.apply()
    title, row = (line.split() for line in paddock("get", "sb", "-L", "app,example.org/tier").stdout.splitlines())
    assert title[-2:] == ["APP", "TIER"]
    assert row[-1] == "demo"


def test_the_namespace_before_the_command(paddock: Run, served: ApiStack) -> None:
    served.apply(QUICKSTART.replace("name: quickstart", "name: far\n  namespace: team"))
    assert paddock("-n", "team", "get", "sb", "-o", "name").stdout == "sandbox.paddock/far\n"


def test_versions(paddock: Run) -> None:
    assert paddock("--version").stdout == f"paddock {VERSION} (speaks paddock/v1alpha1)\n"
    document = json.loads(paddock("version", "--daemon", "-o", "json").stdout)
    assert document["clientVersion"]["version"] == document["serverVersion"]["version"] == VERSION


def test_create_refuses_what_exists_and_replace_what_does_not(paddock: Run, served: ApiStack, spec: Spec) -> None:
    file = spec(QUICKSTART)
    assert "not found" in paddock("replace", "-f", file).stderr
    assert paddock("create", "-f", file, "--dry-run=client").stdout == (
        "sandbox.paddock/quickstart created (client dry run)\n"
    )
    assert paddock("create", "-f", file).stdout == "sandbox.paddock/quickstart created\n"
    again = paddock("create", "-f", file)
    assert (again.exit_code, "already exists" in again.stderr) == (1, True)
    changed = spec(QUICKSTART.replace("spec:", "spec:\n  priority: 7", 1), "changed.yaml")
    assert paddock("replace", "-f", changed).stdout == "sandbox.paddock/quickstart replaced\n"
    assert served.sandbox().spec["priority"] == 7
    assert paddock("replace", "-f", file).exit_code == 0
    assert served.sandbox().spec.get("priority", 0) == 0
    bad = paddock("create", "-f", spec(QUICKSTART.replace("spec:", "spec:\n  none: 7", 1)))
    assert (bad.exit_code, "nothing was changed" in bad.stderr) == (1, True)


def test_replace_keeps_the_owners_and_the_identity_of_what_was_read(paddock: Run, served: ApiStack, spec: Spec) -> None:
    owned = QUICKSTART.replace(
        "name: quickstart", "name: owned\n  ownerReferences: [{kind: Sandbox, name: quickstart}]"
    )
    paddock("create", "-f", spec(f"{QUICKSTART}---\n{owned}"))
    before = served.sandbox("owned")
    assert [owner_reference["uid"] for owner_reference in before.owner_references] == [served.sandbox().uid]
    read = paddock("get", "sb/owned", "-o", "yaml").stdout
    assert paddock("replace", "-f", "-", stdin=read).exit_code == 0
    assert served.sandbox("owned").owner_references == before.owner_references
    foreign = owned.replace("name: owned", "name: owned\n  uid: 00000000-0000-0000-0000-000000000000", 1)
    assert paddock("replace", "-f", spec(foreign)).exit_code == 1


def test_rollout_status_needs_names(paddock: Run, served: ApiStack) -> None:
    served.apply()
    for arguments in (("sandboxes",), ("sandboxes,sandboxpools",)):
        done = paddock("rollout", "status", *arguments)
        assert (done.exit_code, "name the objects" in done.stderr) == (2, True)


def test_a_dry_run_deletes_nothing(paddock: Run, served: ApiStack) -> None:
    served.apply()
    assert paddock("delete", "sb", "quickstart", "--dry-run").stdout == (
        "sandbox.paddock/quickstart deleted (server dry run)\n"
    )
    assert paddock("delete", "sb", "--all", "--dry-run=client").exit_code == 0
    assert "not found" in paddock("delete", "sb", "none", "--dry-run=server").stderr
    assert served.sandbox().deleted_at is None


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [(["--force"], 0), (["--now"], 1), (["--grace-period=5"], 5), (["--force", "--grace-period=0"], 0)],
)
def test_the_grace_period_of_a_deletion(paddock: Run, served: ApiStack, flags: list[str], seconds: int) -> None:
    served.apply()
    done = paddock("delete", "sb", "quickstart", "--no-wait", *flags)
    assert done.exit_code == 0, done.stderr
    sandbox = served.sandbox()
    assert (sandbox.deleted_at is not None, sandbox.spec["lifecycle"]["shutdownGracePeriodSeconds"]) == (True, seconds)
    assert paddock("delete", "sb", "x", "--now", "--grace-period=3").exit_code == 2


def test_logs_of_several_sandboxes_have_prefixes(paddock: Run, served: ApiStack) -> None:
    served.apply(f"{QUICKSTART}---\n{QUICKSTART.replace('name: quickstart', 'name: other')}")
    for name in ("quickstart", "other"):
        served.view.show(served.sandbox(name))
    both = "[other] hello\n[quickstart] hello\n"
    assert paddock("logs", "other", "quickstart").stdout == both
    assert sorted(paddock("logs", "-l", "app=demo", "-f").stdout.splitlines()) == both.splitlines()
    assert paddock("logs", "other").stdout == "hello\n"
    assert paddock("logs", "other", "--prefix").stdout == "[other] hello\n"
    partly = paddock("logs", "other", "none")
    assert (partly.exit_code, partly.stdout) == (1, "[other] hello\n")
    assert "none: " in partly.stderr
    assert "no sandboxes match" in paddock("logs", "-l", "app=none").stderr


def test_logs_since_a_time(paddock: Run, served: ApiStack) -> None:
    served.apply()
    served.view.show(served.sandbox())
    at = datetime.now(UTC) - timedelta(hours=1)
    assert paddock("logs", "quickstart", "--since-time", at.isoformat()).exit_code == 0
    requested: dict[str, Any] = served.streams.asked[-1][1]
    assert requested["since"] is not None
    assert "has no time zone" in paddock("logs", "quickstart", "--since-time", "2026-01-31T12:00:00").stderr
    assert "is not a time" in paddock("logs", "quickstart", "--since-time", "yesterday").stderr


def test_all_permissions_in_a_list(paddock: Run) -> None:
    rows = dict(line.split(maxsplit=1) for line in paddock("auth", "can-i", "--list").stdout.splitlines())
    assert rows["sandboxes"] == "get list create update delete exec logs"
    assert rows["events"] == "get list"
    assert paddock("auth", "can-i").exit_code == 2


def test_events_for_an_object(paddock: Run, served: ApiStack) -> None:
    served.apply()
    served.add_event(served.sandbox(), "Created", "container created")
    assert "container created" in paddock("events", "--for", "sandbox/quickstart").stdout
    assert paddock("events", "--for", "sandbox/other").stdout == ""


def test_exec_says_where_the_dashes_belong(paddock: Run) -> None:
    output = paddock("exec", "-n", "a", "quickstart", "ls", "-l", "/tmp").stderr
    assert "put `--` before the command: paddock exec" in output
    assert "-- ls -l /tmp" in output


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("gett", "did you mean `get`?"),
        ("ps", "write `paddock get sandboxes`"),
        ("stop", "write `paddock set run-state sandbox/NAME Suspended`"),
        ("xyzzy", "`paddock --help` lists all commands"),
    ],
)
def test_an_unknown_command_says_what_to_write(paddock: Run, word: str, hint: str) -> None:
    output = paddock(word)
    assert (output.exit_code, hint in output.stderr) == (2, True)


def test_go_templates_point_to_jsonpath(paddock: Run) -> None:
    assert "write -o jsonpath=" in paddock("get", "sb", "-o", "go-template={{.items}}").stderr


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("args: [-v]", ""),
        ("livenessProbe: {httpGet: {port: 80}, periodSeconds: 5, failureThreshold: 2}", ""),
        ("ports: [{containerPort: 80}]", "paddock port-forward"),
        ("entrypoint: [sh]", "write `command:"),
        ("replicas: 3", "warmReplicas"),
        ("nodeSelector: {a: b}", "one host"),
        ("hostname: web", "the sandbox's name is its host name"),
        ("env: [{name: A, valueFrom: {secretKeyRef: {name: a}}}]", "`secrets: ["),
        ("resources: {requests: {cpu: 1}}", "write `resources: {limits: {...}}`"),
        ("volumes: [{name: a, emptyDir: {}}]", "write `tmpfs:"),
    ],
)
def test_fields_of_others_say_what_to_write(paddock: Run, spec: Spec, field: str, hint: str) -> None:
    head = "apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: a}\n"
    text = f"{head}spec:\n  template:\n    image: a\n    {field}\n"
    output = paddock("apply", "--dry-run=client", "-f", spec(text)).stderr
    if not hint:
        assert output == "", "it is accepted as it is"
        return
    assert "unknown field; " in output
    assert hint in output


# Every command, option and habit of kubectl's users, and what is printed (stdout and stderr). In this order.
HABITS = [
    ("apply -f FILE --dry-run=server", 0, "created (server dry run)"),
    ("apply -f FILE -o name", 0, "sandbox.paddock/quickstart"),
    ("apply -f FILE --wait --timeout 0s", 1, "0/1 Ready"),
    ("get all", 0, "sandbox.paddock/quickstart"),
    ("get sb -L app", 0, "APP"),
    ("get sb -o go-template={{.items}}", 2, "write -o jsonpath="),
    ("get sb/quickstart -o jsonpath={.status.phase}", 0, ""),
    ("-n team get sb", 0, "No resources found in team namespace"),
    ("-v get sb", 0, "GET /apis/paddock/v1alpha1/namespaces/default/sandboxes?limit=500 200 in"),
    ("restart quickstart --timeout 0", 1, "not Suspended within 0 s"),
    ("rollout restart sandbox/quickstart --timeout 0", 1, "not Suspended within 0 s"),
    ("logs -l app=none", 1, "no sandboxes match"),
    ("logs quickstart other", 1, "other: "),
    ("logs quickstart --since-time yesterday", 2, "is not a time"),
    ("auth can-i --list", 0, "get list create update delete exec logs"),
    ("--version", 0, "speaks paddock/v1alpha1"),
    ("version -o json", 0, '"clientVersion"'),
    ("events --for sandbox/quickstart", 0, ""),
    ("run --image a:1 --rm -i --wait 10ms -- python3 -", 1, "the sandbox was not Ready within 0.01 s"),
    ("exec quickstart ls -l", 2, "put `--` before the command: paddock exec quickstart -- ls -l"),
    ("aply -f FILE", 2, "did you mean `apply`?"),
    ("set imge sb/quickstart a:2", 2, "Did you mean 'image'?"),
    ("ps", 2, "write `paddock get sandboxes`"),
    ("create -f FILE", 1, "already exists"),
    ("replace -f FILE", 0, "sandbox.paddock/quickstart replaced"),
    ("mcp config", 0, '"mcpServers"'),
    ("top", 0, "No running sandboxes in default namespace"),
    ("delete sb quickstart --dry-run", 0, "deleted (server dry run)"),
    ("delete sb quickstart --now --grace-period=3", 2, "--grace-period"),
    ("delete sb quickstart --force --no-wait", 0, 'sandbox.paddock "quickstart" deleted'),
]


def test_habits_of_kubectls_users(paddock: Run, served: ApiStack, spec: Spec) -> None:
    file = spec(QUICKSTART)
    for message, code, output in HABITS:
        done = paddock(*message.replace("FILE", file).split())
        assert (done.exit_code, output in done.stdout + done.stderr) == (code, True), f"{message}: {done.output}"


def test_the_phase_is_in_the_object(paddock: Run, served: ApiStack) -> None:
    served.apply()
    served.set_ready()
    assert paddock("get", "sb/quickstart", "-o", "jsonpath={.status.phase}").stdout.strip() == "Running"


def test_apply_waits_and_prints_objects(paddock: Run, served: ApiStack, spec: Spec) -> None:
    file = spec(QUICKSTART)
    late = paddock("apply", "-f", file, "--wait", "--timeout", "0s")
    assert (late.exit_code, "0/1 Ready within 0 s; not: quickstart" in late.stderr) == (1, True)
    served.set_ready()
    done = paddock("apply", "-f", file, "--wait")
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart unchanged\n")
    assert "1/1 Ready" in done.stderr
    assert paddock("apply", "-f", file, "-o", "name").stdout == "sandbox.paddock/quickstart\n"
    assert json.loads(paddock("apply", "-f", file, "-o", "json").stdout)["kind"] == "Sandbox"
    assert paddock("apply", "-f", file, "--wait", "--dry-run=server").exit_code == 2


def test_apply_counts_the_ready_sandboxes(
    paddock: Run, served: ApiStack, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.cli.text.progress._AFTER_SECONDS", 0)
    served.apply(both := f"{QUICKSTART}---\n{QUICKSTART.replace('name: quickstart', 'name: other')}")
    served.set_ready()
    served.set_ready("False", "ImagePulling", "a:1 is being pulled", name="other")
    late = paddock("apply", "-f", spec(both), "--wait", "--timeout", "1s").stderr
    assert "waiting for 2 sandboxes: 1/2 Ready\n" in late
    assert late.count("waiting for sandbox other: Ready=False ImagePulling: a:1 is being pulled\n") == 1
    assert "error: 1/2 Ready within 1 s; not: other; see `paddock why NAME`" in late


def test_bytes_of_a_pull_are_shown_while_it_is_waited_for(
    paddock: Run, served: ApiStack, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.cli.text.progress._AFTER_SECONDS", 0)
    monkeypatch.setattr("controller.cli.text.progress._PULLS_SECONDS", 0.05)
    served.apply()
    served.set_ready("False", "ImagePulling", "paddock/x:1 is being pulled")
    image = served.sandbox().spec["template"]["image"]
    served.images.pulls = [ImagePull(image, 43 << 20, 120 << 20), ImagePull("other/y:1")]
    output = paddock("apply", "-f", spec(QUICKSTART), "--wait", "--timeout", "2s").stderr
    assert output.count(f"Pulling {image}: 43 of 120 MiB\n") == 1
    printed = paddock("describe", "sb/quickstart").stdout
    assert f"Pulling {image}: 43 of 120 MiB" in printed
    assert "other/y:1" not in printed
    served.set_ready()
    assert "Pulling" not in paddock("describe", "sb/quickstart").stdout


class SlowImages:
    """A connection whose answer comes only once the wait for it is over."""

    def __init__(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()
        self.questions = self.answers = 0

    def get(self, _path: str) -> dict[str, Any]:
        self.questions += 1
        self.asked.set()
        self.over.wait()
        threading.Event().wait(0.2)
        self.answers += 1
        return {"items": []}


def test_the_last_question_of_pulls_ends_with_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cli.text.progress._PULLS_SECONDS", 0.01)
    client = SlowImages()
    with pulls_shown(client, Waiting(None)):  # type: ignore[arg-type]  # the part of it that is asked
        client.asked.wait()
        client.over.set()
    assert client.answers == client.questions, "its connection would be used after the client is closed"
