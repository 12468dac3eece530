"""`paddock top`: text and JSON."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.api.fleet.collect import Collected, Missing
from controller.api.routes.sandbox import usage
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import UsageSample
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.sandbox.usage import UsageList, Usages
from tests.cli.conftest import Run
from tests.cli.terminals import on_terminal
from tests.helpers_api import QUICKSTART, ApiStack
from tests.metrics.made_up import MIB, USAGE

SECOND = QUICKSTART.replace("name: quickstart", "name: second")


@pytest.fixture
def measured(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sandboxes that run, and one that does not."""
    api.apply(f"{QUICKSTART}---\n{SECOND}---\n{QUICKSTART.replace('name: quickstart', 'name: asleep')}")

    class Samples:
        def now(self) -> Mapping[str, UsageSample]:
            document = {}
            for name, cores, memory in (("quickstart", 0.25, 80), ("second", 1.5, 40)):
                obj = api.sandbox(name)
                sandbox = Container(f"c-{name}", name, obj.uid, State.RUNNING, limits=Limits(0, 0, 0), started_at=100.0)
                usage = USAGE._replace(memory_working_set_bytes=memory * MIB, network=None)
                document[obj.uid] = UsageSample(sandbox, usage, at=100.0 + 7200, cpu_cores=cores, window_seconds=15.0)
            return document

    api.services = replace(api.services, usages=Usages(api.services.objects, Samples().now))


@pytest.mark.usefixtures("measured")
def test_running_sandboxes_as_a_table(paddock: Run) -> None:
    done = paddock("top")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert " ".join(lines[0]) == "NAME CPU% MEMORY LIMIT NET RX NET TX READ WRITTEN PIDS UPTIME"
    assert lines[1] == ["quickstart", "25.0", "80Mi", "256Mi", "-", "-", "4Ki", "8Ki", "7", "2h"]
    assert [line[0] for line in lines[2:]] == ["second"]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("by", "first"), [("cpu", "second"), ("memory", "quickstart"), ("name", "quickstart")])
def test_sort_by_puts_the_largest_first(paddock: Run, by: str, first: str) -> None:
    done = paddock("top", "-A", "--sort-by", by, "--no-headers")
    assert done.stdout.split()[:2] == ["default", first]


@pytest.mark.usefixtures("measured")
def test_json_has_the_nine_figures(paddock: Run) -> None:
    document = json.loads(paddock("top", "quickstart", "-o", "json").stdout)
    assert (document["kind"], document["metadata"]["name"], document["windowSeconds"]) == (
        "SandboxMetrics",
        "quickstart",
        15,
    )
    assert document["usage"] == {
        "cpuPercent": 25.0,
        "cpuLimitPercent": 50.0,
        "memoryUsageBytes": 80 * MIB,
        "memoryLimitBytes": 256 * MIB,
        "networkReceiveBytes": None,
        "networkTransmitBytes": None,
        "diskReadBytes": 4096,
        "diskWriteBytes": 8192,
        "processes": 7,
        "processesLimit": 128,
        "uptimeSeconds": 7200.0,
    }


@pytest.mark.usefixtures("measured")
def test_missing_figures_give_a_reason(paddock: Run) -> None:
    asleep = paddock("top", "asleep")
    assert asleep.exit_code != 0
    assert "sandbox `asleep` has no figures: it does not run" in asleep.stderr
    assert "not found" in paddock("top", "nobody").stderr
    assert "No running sandboxes in other namespace." in paddock("top", "-n", "other").stderr


def test_conflicting_options(paddock: Run) -> None:
    assert "can't be combined with -o" in paddock("top", "-w", "-o", "json").stderr
    assert "a name can't be combined with -A" in paddock("top", "-A", "box").stderr


@pytest.mark.usefixtures("measured")
def test_watch_on_a_terminal_shows_bars_against_limits(served: ApiStack) -> None:
    with on_terminal(served, "top", "-w", "--sort-by", "cpu") as screen:
        observed = screen.until("2h", times=2)
        screen.interrupt()
        assert screen.ended() == 130
    text = observed[observed.index("NAME") :]
    assert text.index("second") < text.index("quickstart"), "the busiest first"
    for output in ("25%/50%", "150%/50%", "80Mi/256Mi", "7/128", "\u2588" * 6 + "\u2591" * 6):
        assert output in text, output


@pytest.mark.usefixtures("measured")
def test_watch_refreshes_until_interrupted(served: ApiStack) -> None:
    arguments = ["--server", f"unix://{served.socket}", "top", "-w", "--interval", "100ms", "--no-headers"]
    with subprocess.Popen(
        [sys.executable, "-m", "controller", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split()[0] for _ in range(6)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    assert lines == ["quickstart", "second"] * 3


@pytest.fixture
def fleet(measured: None, api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same two, of which `second` runs on host b; host c gave no answer."""

    every = api.services.usages.of_all

    def own(*words: object, **options: object) -> UsageList:
        usage_list = every(*words, **options)  # type: ignore[arg-type]
        return UsageList(
            usage_list.at,
            [
                replace(sandbox_usage, host="a")
                for sandbox_usage in usage_list.usages
                if sandbox_usage.obj.name == "quickstart"
            ],
        )

    observed = every(SANDBOX, None)
    present = [document for document in observed.items if document["metadata"]["name"] == "second"]
    answers = Collected({"b": {"kind": "SandboxMetricsList", "items": present}}, [Missing("c", "[::1]:7: gone")])
    monkeypatch.setattr(api.services.usages, "of_all", own)
    monkeypatch.setattr(usage, "collect", lambda _request: answers)


@pytest.mark.usefixtures("fleet")
def test_sandboxes_of_many_hosts_name_theirs(paddock: Run) -> None:
    done = paddock("top", "-A")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:4] == ["NAMESPACE", "NAME", "HOST", "CPU%"]
    assert [line[:3] for line in lines[1:]] == [["default", "quickstart", "a"], ["default", "second", "b"]]
    assert "Without the sandboxes of missing hosts: c ([::1]:7: gone)." in done.stderr
    document = json.loads(paddock("top", "-o", "json").stdout)
    assert [entry["host"] for entry in document["items"]] == ["a", "b"]
    assert document["missing"] == [{"host": "c", "message": "[::1]:7: gone"}]


@pytest.mark.usefixtures("fleet")
def test_watch_on_a_terminal_names_hosts(served: ApiStack) -> None:
    with on_terminal(served, "top", "-w") as screen:
        observed = screen.until("[::1]:7: gone")
        screen.interrupt()
        assert screen.ended() == 130
    assert "HOST" in observed
