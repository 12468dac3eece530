"""`paddock get`, `describe` and `events`: output as kubectl's users expect it."""

import json
import signal
import subprocess
import sys

import pytest
import yaml

from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.plan import Writes
from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack


@pytest.fixture
def two(served: ApiStack) -> ApiStack:
    served.apply(f"{QUICKSTART}---\n{QUICKSTART.replace('quickstart', 'second').replace('demo', 'web')}")
    served.set_ready()
    served.clock.advance(300)
    return served


def test_a_table_is_aligned_as_kubectl_does(paddock: Run, two: ApiStack) -> None:
    assert paddock("get", "sandboxes").stdout == (
        "NAME         READY     STATUS    RESTARTS   CPU   MEMORY   PIDS   AGE\n"
        "quickstart   True      Running   2          -     -        -      5m\n"
        "second       Unknown   Pending   0          -     -        -      5m\n"
    )


@pytest.mark.parametrize("word", ["sandboxes", "sandbox", "sb", "Sandbox", "sandbox.paddock"])
def test_every_name_of_a_kind_works(paddock: Run, two: ApiStack, word: str) -> None:
    assert paddock("get", word, "quickstart", "--no-headers").stdout.startswith("quickstart   True")


def test_names_selectors_and_slashes(paddock: Run, two: ApiStack) -> None:
    assert paddock("get", "sb", "-l", "app=web", "-o", "name").stdout == "sandbox.paddock/second\n"
    assert paddock("get", "sb", "second", "quickstart", "-o", "name").stdout == (
        "sandbox.paddock/second\nsandbox.paddock/quickstart\n"
    )
    assert paddock("get", "sb/second", "sandbox/quickstart", "--no-headers").stdout.count("\n") == 2


def test_wide_and_all_namespaces(paddock: Run, two: ApiStack) -> None:
    lines = paddock("get", "sb", "-A", "-o", "wide").stdout.splitlines()
    assert (
        " ".join(lines[0].split())
        == "NAMESPACE NAME READY STATUS RESTARTS CPU MEMORY PIDS AGE IMAGE LAUNCH HOST CONTAINER"
    )
    assert lines[1].split()[:2] == ["default", "quickstart"]
    assert "paddock/python:1" in lines[1]


def test_json_and_yaml_are_the_object_or_a_list(paddock: Run, two: ApiStack) -> None:
    one = json.loads(paddock("get", "sb", "quickstart", "-o", "json").stdout)
    assert (one["kind"], one["metadata"]["name"]) == ("Sandbox", "quickstart")
    assert yaml.safe_load(paddock("get", "sb/quickstart", "-o", "yaml").stdout) == one
    many = yaml.safe_load(paddock("get", "sb", "-o", "yaml").stdout)
    assert (many["kind"], many["items"][0]) == ("List", one)


def test_no_objects_is_exit_code_0_with_a_note(paddock: Run) -> None:
    done = paddock("get", "sb")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "No resources found in default namespace.\n")
    assert paddock("get", "sb", "-n", "team").stderr == "No resources found in team namespace.\n"
    assert paddock("get", "sb", "-A").stderr == "No resources found.\n"


def test_missing_objects_fail_and_the_rest_is_shown(paddock: Run, two: ApiStack) -> None:
    done = paddock("get", "sb", "nope", "quickstart", "-o", "name")
    assert (done.exit_code, done.stdout) == (1, "sandbox.paddock/quickstart\n")
    assert done.stderr == "error: sandboxes `nope` not found in namespace `default`\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["sandboxs"], 1, "unknown kind `sandboxs`; did you mean `sandboxes`?"),
        (
            ["xyzzy"],
            1,
            "kind `xyzzy`, and no sandbox of namespace default is called so; known kinds: all, events/ev, hosts,",
        ),
        (["pools"], 1, "unknown kind `pools`; did you mean `sandboxpools`?"),
        (["pool/warm"], 1, "unknown kind `pool`; did you mean `sandboxpool`?"),
        ([], 2, "name a kind"),
        (["sb/a", "b"], 2, "all must be"),
        (["sb", "a", "-A"], 2, "can't be combined"),
        (["sb", "-l", "a b"], 1, "can't read `a b`"),
    ],
)
def test_wrong_arguments_are_explained(paddock: Run, words: list[str], code: int, said: str) -> None:
    done = paddock("get", *words)
    assert done.exit_code == code
    assert said in done.stderr


def test_describe_shows_spec_conditions_and_events(paddock: Run, two: ApiStack) -> None:
    two.add_event(two.sandbox(), "Created", "container pdk-quickstart made")
    shown = paddock("describe", "sb", "quickstart").stdout
    assert "Name:           quickstart\n" in shown
    assert "Labels:         app=demo\n" in shown
    assert "    image: paddock/python:1\n" in shown
    assert "Status:\n  observedGeneration: 1\n  restartCount: 2\n" in shown
    assert "  TYPE    STATUS   SINCE                  REASON    MESSAGE\n" in shown
    assert "  Ready   True     2023-11-14T22:13:20Z   Running\n" in shown
    assert "sandbox/quickstart   container pdk-quickstart made" in shown
    second = paddock("describe", "sb/second").stdout
    assert "Conditions:\n  none yet\nEvents:  none\n" in second
    assert paddock("describe", "sb", "-l", "app").stdout.count("Name: ") == 2


def test_events_of_everything_or_of_one(paddock: Run, two: ApiStack) -> None:
    two.add_event(two.sandbox(), "Created", "made")
    two.clock.advance(60)
    two.add_event(two.sandbox("second"), "Failed", "no image", "Warning")
    assert paddock("events").stdout == (
        "LAST SEEN   TYPE      REASON    OBJECT               MESSAGE\n"
        "60s         Normal    Created   sandbox/quickstart   made\n"
        "0s          Warning   Failed    sandbox/second       no image\n"
    )
    assert paddock("events", "sb/second", "--no-headers").stdout.split()[1:3] == ["Warning", "Failed"]
    assert json.loads(paddock("events", "-A", "-o", "json").stdout)["items"][0]["reason"] == "Created"
    host = StoredObject("Host", "", "host", "uid-host", {})
    two.add_event(host, "ImagePruned", "old")
    assert "ImagePruned" in paddock("events", "host/host").stdout, "it is in no namespace"
    assert paddock("events", "-n", "team").stderr == "No events found in team namespace.\n"
    assert "can't be combined with -o" in paddock("events", "-w", "-o", "json").stderr


def test_events_are_shown_as_they_happen(served: ApiStack) -> None:
    served.apply(QUICKSTART)
    sandbox = served.sandbox()
    served.add_event(sandbox, "Created", "made")
    words = ["--server", f"unix://{served.socket}", "events", "sb/quickstart", "-w"]
    with subprocess.Popen([sys.executable, "-m", "controller", *words], stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        assert shown.stdout.readline().startswith("LAST SEEN")
        assert "made" in shown.stdout.readline()
        served.add_event(sandbox, "Killed", "killed")
        assert "killed" in shown.stdout.readline()
        served.add_event(sandbox, "Created", "made")
        assert "(x2)" in shown.stdout.readline()
        many = [Event(sandbox.ref, "Normal", "Restarted", f"run {each}", served.clock.now()) for each in range(150)]
        served.store.record(Writes(events=tuple(many)))  # more than one look asks for
        assert [shown.stdout.readline().split()[-1] for _ in range(150)] == [str(number) for number in range(150)]
        shown.send_signal(signal.SIGINT)
        assert shown.wait(30) != 0
