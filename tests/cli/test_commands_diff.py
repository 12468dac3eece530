"""`paddock diff` and `apply --dry-run=server --plan`: output, exit codes and engine calls."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.api.app import create_app
from controller.api.server.server import ApiServer
from controller.cli.main import cli
from controller.ports import NullMeter
from controller.service.explain.diff import Diff
from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack
from tests.loop.harness import TINY, LoopHarness
from tests.migrated import open_store

LOST = "; volumes stay, files in memory are lost, and its root file system begins from the image"
SPEC = QUICKSTART.replace("paddock/python:1", TINY).replace('"infinity"', '"1000000"')


@pytest.fixture
def harness(tmp_path: Path, quiet: None) -> Iterator[LoopHarness]:
    with open_store(tmp_path) as store:
        harness = LoopHarness(store)
        yield harness
        harness.close()


@pytest.fixture
def live(harness: LoopHarness, tmp_path: Path) -> Iterator[Run]:
    """Command line of a daemon whose reconcile passes are started by the test."""
    diff = Diff(
        apply=harness.services.apply,
        store=harness.store,
        clock=harness.clock,
        snapshot=lambda: harness.reconcile_pass.last,
    )
    services = dataclasses.replace(harness.services, diff=diff)
    server = ApiServer(create_app(services, ready=list, meter=NullMeter()), tmp_path / "p.sock", grace_seconds=1)
    server.start()

    def run(*words: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, ["--server", f"unix://{tmp_path / 'p.sock'}", *words], input=stdin)

    yield run
    server.stop()


def test_no_difference_is_exit_code_0_without_output(paddock: Run, spec: Callable[..., str], served: ApiStack) -> None:
    served.apply()
    done = paddock("diff", "-f", spec())
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_a_difference_is_exit_code_1_and_a_unified_diff(
    paddock: Run, spec: Callable[..., str], served: ApiStack
) -> None:
    served.apply()
    done = paddock("diff", "-f", spec(QUICKSTART.replace("512Mi", "1Gi")))
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[:2] == ["--- live/sandbox.paddock.default.quickstart", "+++ merged/sandbox.paddock.default.quickstart"]
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        "-  generation: 1",
        "+  generation: 2",
        "-      memory: 512Mi",
        "+      memory: 1Gi",
    ]
    new = paddock("diff", "-f", spec(QUICKSTART.replace("name: quickstart", "name: other")))
    assert (new.exit_code, "+  name: other\n" in new.stdout) == (1, True)
    output = paddock("diff", "--delete", "-f", spec())
    assert (output.exit_code, "-  name: quickstart\n" in output.stdout) == (1, True)


def test_errors_have_exit_codes_above_1(paddock: Run, spec: Callable[..., str]) -> None:
    bad = paddock("diff", "-f", spec(QUICKSTART.replace("512Mi", "512m")))
    assert (bad.exit_code, bad.stdout) == (2, "")
    assert ":11:33: spec.resources.limits.memory: `512m` is 0.512 bytes" in bad.stderr
    assert paddock("diff").exit_code == 2
    assert paddock("diff", "-f", "/nowhere.yaml").exit_code == 2
    assert paddock("--server", "unix:///nowhere.sock", "diff", "-f", spec()).exit_code == 2
    early = paddock("diff", "--plan", "-f", spec())
    assert (early.exit_code, "has not observed the engine yet" in early.stderr) == (2, True)


def test_a_plan_is_printed_not_executed(live: Run, harness: LoopHarness) -> None:
    harness.run_pass()
    done = live("diff", "--plan", "-f", "-", stdin=SPEC)
    assert done.exit_code == 1
    assert done.stdout.endswith(
        "sandbox.paddock/quickstart created\n"
        "  engine calls:\n"
        "    create pdk-quickstart-xxxxxxxx from paddock/test-tiny:1  # no container yet\n"
        "    start pdk-quickstart-xxxxxxxx  # no container yet\n"
        "hostquota host: cpu 0/64 -> 500m/64, memory 0/16Gi -> 512Mi/16Gi\n"
    )
    assert (harness.engine.calls, harness.names()) == ([], [])


def test_fields_effects_and_calls(live: Run, harness: LoopHarness) -> None:
    assert live("apply", "-f", "-", stdin=SPEC).exit_code == 0
    harness.settle()
    calls = len(harness.engine.calls)
    name = harness.container_name("quickstart")
    changed = SPEC.replace("512Mi", "128Mi").replace(TINY, "other:1").replace("app: demo", "app: new")
    expected = f"""\
sandbox.paddock/quickstart configured
  metadata.labels.app: demo -> new
    live: changed in place, without a restart
  spec.template.image: {TINY} -> other:1
    recreate: spec.template.image changed from {TINY} to other:1{LOST}
  spec.resources.limits.memory: 512Mi -> 128Mi
    live: changed in place, without a restart
  engine calls:
    signal TERM {name}  # spec.template.image changed from {TINY} to other:1
    remove {name}  # spec.template.image changed from {TINY} to other:1
    create {name} from other:1  # spec.template.image changed from {TINY} to other:1
    start {name}  # spec.template.image changed from {TINY} to other:1
hostquota host: cpu 500m/64, memory 512Mi/16Gi -> 128Mi/16Gi
"""
    done = live("apply", "--dry-run=server", "--plan", "-f", "-", stdin=changed)
    assert (done.exit_code, done.stdout) == (0, expected)
    both = live("diff", "--plan", "-f", "-", stdin=changed)
    assert (both.exit_code, both.stdout.endswith(expected)) == (1, True)
    assert len(harness.engine.calls) == calls
    outcome = live("diff", "--plan", "-f", "-", stdin=SPEC)
    assert (outcome.exit_code, outcome.stdout) == (0, "sandbox.paddock/quickstart unchanged\n  engine calls: none\n")
    removed = live("diff", "--plan", "--delete", "-f", "-", stdin=SPEC)
    assert removed.stdout.endswith(
        f"    remove {name}  # deleted\n  then deleted\n"
        "hostquota host: cpu 500m/64 -> 0/64, memory 512Mi/16Gi -> 0/16Gi\n"
    )


def test_a_plan_without_a_dry_run_is_refused(paddock: Run, spec: Callable[..., str]) -> None:
    done = paddock("apply", "--plan", "-f", spec())
    assert (done.exit_code, "use `paddock diff --plan`" in done.stderr) == (2, True)
