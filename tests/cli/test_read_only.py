"""Command line and read-only kinds."""

import json
import re
from dataclasses import replace

import pytest
import yaml

from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.runtime.container import Limits
from tests.cli.conftest import Run
from tests.fakes.engine import FACTS
from tests.helpers_api import ApiStack
from tests.instance_states import instance_state


@pytest.fixture
def sandbox(served: ApiStack) -> ApiStack:
    """A sandbox with a container, its record and two events."""
    served.apply()
    sandbox = served.sandbox()
    container = served.view.show(sandbox)
    served.view.seen = replace(served.view.seen, facts=FACTS, revision=1)
    memory = instance_state(restarts=2, container=container.id)
    limits, now = Limits(500, 512 << 20, 64), served.clock.now()
    instance = Instance(
        container.name, sandbox.uid, "Sandbox", "default", "quickstart", "sandbox", limits, now, memory
    )  # fmt: skip
    served.store.record(Writes(instances=(instance,)))
    served.add_event(sandbox, "Created", "made")
    served.add_event(sandbox, "Failed", "no image", "Warning")
    served.clock.advance(300)
    return served


def test_tables(paddock: Run, sandbox: ApiStack) -> None:
    assert paddock("get", "inst").stdout == (
        "NAME                      PARENT               ROLE      STATE     RESTARTS   CPU    MEMORY   PIDS   AGE\n"
        "pdk-quickstart-00000000   sandbox/quickstart   sandbox   Running   2          500m   512Mi    64     5m\n"
    )
    assert paddock("get", "ev").stdout == (
        "LAST SEEN   TYPE      REASON    OBJECT               MESSAGE\n"
        "5m          Normal    Created   sandbox/quickstart   made\n"
        "5m          Warning   Failed    sandbox/quickstart   no image\n"
    )
    assert paddock("get", "host", "--no-headers").stdout.split()[:5] == ["host", "Ready", "500m/4", "512Mi/16Gi", "1"]
    full_isolation = {line.split()[0]: line.split() for line in paddock("get", "sp").stdout.splitlines()}[
        "full-isolation"
    ]
    assert full_isolation[:7] == ["full-isolation", "none", "full-isolation", "True", "none", "none", "minimal"]


def test_every_output_format(paddock: Run, sandbox: ApiStack) -> None:
    name = "pdk-quickstart-00000000"
    assert paddock("get", "inst", "-l", "paddock.role=sandbox", "-o", "name").stdout == f"instance.paddock/{name}\n"
    assert paddock("get", "inst", name, "-o", "jsonpath={.status.state}").stdout == "Running\n"
    assert "c-quickstart" in paddock("get", "inst", "-A", "-o", "wide").stdout
    document = json.loads(paddock("get", "host", "host", "-o", "json").stdout)
    assert (document["kind"], document["spec"]) == ("Host", {})
    assert yaml.safe_load(paddock("get", "host/host", "-o", "yaml").stdout) == document
    warned = paddock("get", "ev", "--field-selector", "type=Warning", "-o", "custom-columns=R:.reason")
    assert warned.stdout == "R\nFailed\n"
    lines = paddock("get", "ev", "--sort-by", ".message", "--no-headers").stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["Created", "Failed"]
    event = paddock("get", "ev", "-o", "jsonpath={.items[1].metadata.name}").stdout.strip()
    assert "Failed" in paddock("get", "ev", event).stdout


def test_describe(paddock: Run, sandbox: ApiStack) -> None:
    output = paddock("describe", "host").stdout
    assert re.search(r"^  EngineReachable +True", output, re.MULTILINE)
    assert "Created:" not in output
    assert "  parent:\n    kind: Sandbox\n" in paddock("describe", "inst").stdout
    assert "message: no image\n" in paddock("describe", "ev").stdout
    assert "  noNewPrivileges: true\n" in paddock("describe", "sp", "full-isolation").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["delete", "inst", "pdk-quickstart-00000000"],
        ["delete", "ev", "--all"],
        ["edit", "inst", "x"],
        ["patch", "inst/x", "-p", "{}"],
        ["label", "inst", "x", "a=b"],
        ["annotate", "inst", "x", "a=b"],
        ["set", "run-state", "inst/x", "Paused"],
        ["set", "image", "inst/x", "b"],
    ],
    ids=" ".join,
)
def test_every_changing_command_explains_its_refusal(
    paddock: Run, sandbox: ApiStack, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "false")  # never opened
    done = paddock(*words)
    assert done.exit_code == 1
    assert " is read-only: " in done.stderr
    assert paddock("get", "inst", "-o", "name").stdout


def test_one_undeletable_object_stops_the_whole_delete(paddock: Run, sandbox: ApiStack) -> None:
    assert paddock("delete", "sb,inst", "--all", "--no-wait").exit_code == 1
    assert sandbox.sandbox().deleted_at is None


def test_applying_read_only_output_gives_one_reason(paddock: Run, sandbox: ApiStack) -> None:
    for kind, count in (("ev", 2), ("host", 1), ("inst", 1)):
        done = paddock("apply", "-f", "-", stdin=paddock("get", kind, "-o", "yaml").stdout)
        assert (done.exit_code, done.stderr.count(" is read-only: ")) == (1, count)
        assert f"{count} problem" in done.stderr


def test_watch_is_refused_and_wait_polls(paddock: Run, sandbox: ApiStack) -> None:
    done = paddock("get", "host", "-w")
    assert (done.exit_code, "hosts are computed on each read" in done.stderr) == (1, True)
    assert paddock("wait", "--for=condition=EngineReachable", "host/host").stdout == "host.paddock/host condition met\n"
    late = paddock("wait", "--for=condition=StoreWritable=False", "host/host", "--timeout=10ms")
    assert (late.exit_code, "StoreWritable=True Answered" in late.stderr) == (1, True)


def test_explain_knows_status_and_flat_fields(paddock: Run) -> None:
    assert "securityOptions\t<[]string>" in paddock("explain", "host.status.engine").stdout
    assert "involvedObject\t<Object>" in paddock("explain", "ev").stdout
    assert "Read-only: Paddock manages one" in paddock("explain", "inst").stdout
    published = json.loads(paddock("explain", "--schema").stdout)
    assert not {"Event", "Host", "Instance"} & set(published["definitions"])


def test_a_host_is_cordoned_labeled_and_uncordoned(paddock: Run, sandbox: ApiStack) -> None:
    trial = paddock("host", "cordon", "host", "--dry-run=server")
    assert trial.stdout == "host.paddock/host cordoned (server dry run)\n"
    assert paddock("get", "host", "--no-headers").stdout.split()[1] == "Ready"
    assert paddock("host", "cordon", "host").stdout == "host.paddock/host cordoned\n"
    assert paddock("host", "cordon", "host").stdout == "host.paddock/host cordoned (no change)\n"
    assert paddock("get", "host", "--no-headers").stdout.split()[1] == "Ready,SchedulingDisabled"
    assert paddock("label", "host/host", "disk=fast").stdout == "host.paddock/host labeled\n"
    assert paddock("get", "hosts", "-l", "disk=fast", "-o", "name").stdout == "host.paddock/host\n"
    output = paddock("describe", "host/host").stdout
    assert re.search(r"^  EngineReachable +True", output, re.MULTILINE)
    assert "disk=fast" in output
    assert "SINCE" not in output
    assert paddock("host", "drain", "host").stdout == "host.paddock/host draining; 1 sandbox left\n"
    assert paddock("get", "host", "--no-headers").stdout.split()[1:3] == ["Ready,Draining", "(1"]
    assert paddock("host", "release", "host").stdout == "host.paddock/host released\n"
    assert paddock("get", "host", "--no-headers").stdout.split()[1] == "Ready,OutOfService"
    assert paddock("host", "uncordon", "host").stdout == "host.paddock/host uncordoned\n"
    assert paddock("get", "host", "--no-headers").stdout.split()[1] == "Ready"
    assert "write `paddock host uncordon host`" in paddock("uncordon", "host").stderr
    missing = paddock("host", "cordon", "other")
    assert (missing.exit_code, "other" in missing.stderr) == (1, True)
    outcome = paddock("delete", "host/host")
    assert (outcome.exit_code, "only one that is gone can be removed" in outcome.stderr) == (1, True)
