"""`paddock run` without an engine: requests, refusals and cleanup."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli
from controller.cli.objects.watch import until
from controller.cli.runs.run import Job, runtime_of
from controller.kinds.observed.observed import HostFacts
from tests.daemon import wait_for
from tests.helpers_api import ApiStack


def run(served: ApiStack, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--server", f"unix://{served.socket}", "run", *words])


def run_refused(served: ApiStack, reason: str, message: str, *words: str) -> Result:
    """Run a sandbox that becomes Ready=False of that reason once the command waits for it."""

    def refuse() -> None:
        wait_for("it watches", lambda: served.services.watches.count)
        (stored,) = served.store.list("Sandbox")[0]
        served.set_ready("False", reason, message, name=stored.name)

    waiting = threading.Thread(target=refuse)
    waiting.start()
    done = run(served, *words)
    waiting.join()
    return done


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to run"),
        (["-c", "1", "-f", "a.py"], "nothing to run"),
        (["-e", "A", "--", "true"], "NAME=VALUE"),
        (["-t", "--", "true"], "stdin is not a terminal"),
        (["-d", "-i", "--", "true"], "-d leaves no one to talk to"),
        (["-f", "a.exe"], "no interpreter for this suffix"),
        (["--gpus", "many", "-c", "1"], "--gpus many: not understood; write a number, all, or device=ID[,ID]"),
        (["--gpus", '"device=0","capabilities=gpu"', "-c", "1"], "not understood"),
    ],
)
def test_wrong_arguments(served: ApiStack, words: list[str], said: str) -> None:
    done = run(served, *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not served.store.list("Sandbox")[0]


def test_a_sandbox_that_never_starts_is_reported_and_removed(served: ApiStack) -> None:
    done = run(served, "--wait", "100ms", "-c", "1")
    assert done.exit_code == 1
    assert "the sandbox was not Ready within 0.1 s: Pending: not reconciled yet" in done.stderr
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.deleted_at is not None
    assert stored.labels == {"app": "paddock-run"}
    assert (stored.spec["template"]["image"], stored.spec["template"]["command"]) == (
        "paddock/python:1",
        ["sleep", "infinity"],
    )
    assert (stored.spec["restartPolicy"], stored.spec["lifecycle"]["onIdle"]) == ("Never", "Delete")


def test_a_name_in_use_is_refused_and_its_sandbox_stays(served: ApiStack) -> None:
    served.apply("apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: mine}\nspec: {template: {image: a}}\n")
    for detached in ([], ["-d"]):
        done = run(served, *detached, "--name", "mine", "-c", "1")
        assert (done.exit_code, "mine" in done.stderr) == (1, True)
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.deleted_at is None


def test_a_detached_command_is_the_main_one(served: ApiStack, tmp_path: Path) -> None:
    script = tmp_path / "hello.sh"
    script.write_text("echo $A\n")
    arguments = ["--name", "x", "--rm", "--timeout", "90s", "-e", "A=b", "-f", str(script), "--", "one"]
    done = run(served, "-d", "--wait", "100ms", *arguments)
    assert "the sandbox was not Ready within 0.1 s" in done.stderr
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.deleted_at is not None  # as it did not begin
    template = stored.spec["template"]
    assert (template["image"], template["env"]) == ("paddock/python:1", [{"name": "A", "value": "b"}])
    assert template["command"][3:] == ["/tmp/hello.sh", "echo $A\n", "sh", "/tmp/hello.sh", "one"]
    assert stored.spec["restartPolicy"] == "Never"
    document = {"keepRunning": True, "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 90}
    assert document.items() <= stored.spec["lifecycle"].items()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"#" * (100 << 10), "a.sh is larger than 96 KiB, the limit of a detached script"), (b"\xff", "not UTF-8 text")],
)
def test_scripts_that_are_no_argument(served: ApiStack, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.sh").write_bytes(content)
    done = run(served, "-d", "-f", str(tmp_path / "a.sh"))
    assert (done.exit_code, said in done.stderr) == (1, True)
    assert not served.store.list("Sandbox")[0]


def test_the_reason_is_shown_and_in_the_error(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cli.text.progress._AFTER_SECONDS", 0)

    done = run_refused(served, "QuotaExceeded", "quota `q` has 0 of 1 cores left", "--wait", "2s", "-c", "1")
    (stored,) = served.store.list("Sandbox")[0]
    why = "Ready=False QuotaExceeded: quota `q` has 0 of 1 cores left"
    assert done.stderr.splitlines() == [
        f"waiting for sandbox {stored.name}: {why}",
        f"error: the sandbox was not Ready within 2 s: {why}; raise --wait",
    ]


def test_a_template_by_name_lets_a_pool_serve_it(served: ApiStack) -> None:
    run(served, "--wait", "10ms", "--template", "tiny", "--", "true")
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.spec["templateRef"] == {"name": "tiny"}
    assert stored.spec.get("poolPolicy", "Prefer") == "Prefer"


def test_another_level_makes_it_another_template(served: ApiStack) -> None:
    run(served, "--wait", "10ms", "--level", "full-isolation", "-c", "1")
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.spec["template"]["securityLevel"] == "full-isolation"


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("2", {"limits": {"gpus": 2}}),
        ("count=1", {"limits": {"gpus": 1}}),
        ("device=GPU-8a2d", {"gpuDeviceIds": ["GPU-8a2d"], "limits": {}}),
        ('"device=0,1"', {"gpuDeviceIds": ["0", "1"], "limits": {}}),
    ],
)
def test_gpus_are_asked_for_as_with_docker(served: ApiStack, text: str, resources: dict[str, object]) -> None:
    run(served, "--wait", "10ms", "--gpus", text, "--template", "tiny", "--", "true")
    (stored,) = served.store.list("Sandbox")[0]
    assert (stored.spec["resources"], stored.spec["templateRef"]) == (resources, {"name": "tiny"})


def test_all_gpus_are_those_that_the_operator_lists(served: ApiStack) -> None:
    none = run(served, "--gpus", "all", "-c", "1")
    assert (none.exit_code, "--gpus all: no GPU of this host is listed" in none.stderr) == (1, True)
    assert not served.store.list("Sandbox")[0]
    served.view.seen = replace(served.view.seen, facts=HostFacts("20.10", gpus=("0", "1", "2")))
    run(served, "--wait", "10ms", "--gpus", "all", "-c", "1")
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.spec["resources"] == {"limits": {"gpus": 3}}


def test_a_host_without_gpus_ends_it_at_once(served: ApiStack) -> None:
    done = run_refused(
        served, "NoDeviceDriver", "no driver for gpus; install one", "--wait", "60s", "--gpus", "1", "-c", "1"
    )
    assert (done.exit_code, done.stderr) == (1, "error: the sandbox failed: no driver for gpus; install one\n")


def test_a_missing_image_ends_it_at_once(served: ApiStack) -> None:
    """With what is here, before the wait is over; and what was created is removed."""
    why = "echo is not on this host; get it (`paddock image pull echo`)"
    done = run_refused(served, "ImagePullFailed", why, "--wait", "600s", "echo", "hello")
    assert (done.exit_code, f"error: {why}; images here: " in done.stderr) == (1, True)
    assert done.stderr.endswith("; for a program of the default image write `paddock run -- echo`\n")
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.deleted_at is not None


def test_a_build_of_its_image_is_waited_for(served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the default wait, with its progress; a build that fails ends it."""
    monkeypatch.setattr("controller.cli.text.progress._AFTER_SECONDS", 0)
    steps = [("ImageBuilding", f"x is being built: {seconds} s") for seconds in (0, 10)]
    is_building, waits = threading.Event(), list[float]()

    def short_wait(*arguments: Any, deadline: float, **options: Any) -> list[str]:
        assert is_building.wait(60)
        late = until(*arguments, deadline=time.monotonic() + 0.1, **options)
        waits.append(deadline)
        return late

    def build() -> None:
        (stored,) = wait_for("it is created", lambda: served.store.list("Sandbox")[0])
        for reason, message in steps:
            served.set_ready("False", reason, message, name=stored.name)
            is_building.set()
            begun = len(waits) + 1
            wait_for("a whole wait is over", lambda begun=begun: len(waits) > begun)
        served.set_ready("False", "ImageBuildFailed", "x could not be built: no mirror answers", name=stored.name)

    monkeypatch.setattr("controller.cli.runs.run.until", short_wait)
    building = threading.Thread(target=build)
    building.start()
    done = run(served, "-c", "1")
    building.join()
    lines = [line for line in done.stderr.splitlines() if "ImageBuilding" in line]
    assert [line.rpartition(": ")[2] for line in lines] == ["0 s", "10 s"]
    assert (done.exit_code, "error: x could not be built: no mirror answers" in done.stderr) == (1, True)


def test_a_fleet_without_a_scheduler_needs_a_host(served: ApiStack) -> None:
    done = run_refused(served, "NoHost", "it names no host; write `host:` into its spec", "--wait", "60s", "-c", "1")
    message = "it names no host; write `host:` into its spec; for `paddock run`, add --host NAME"
    assert (done.exit_code, done.stderr) == (1, f"error: the sandbox has no host: {message}\n")


def test_a_host_is_named(served: ApiStack) -> None:
    for further in (["--template", "tiny"], ["-d"]):
        run(served, "--wait", "10ms", "--host", "host", *further, "--", "true")
    assert [stored.spec["host"] for stored in served.store.list("Sandbox")[0]] == ["host", "host"]


def test_the_command_to_run(tmp_path: Path) -> None:
    script = tmp_path / "hello.sh"
    script.write_bytes(b"echo hello\n")
    assert Job.of(["a"], "", "print(1)").command == ("python3", "-c", "print(1)", "a")
    assert Job.of(["ls", "-l"], "", "").command == ("ls", "-l")
    assert Job.of(["x"], str(script), "") == Job(("sh", "/tmp/hello.sh", "x"), "/tmp/hello.sh", b"echo hello\n")


@pytest.mark.parametrize(
    ("file", "template", "image", "command"),
    [
        ("a.ts", "bun", "", ("bun", "run", "/tmp/a.ts")),
        ("a.ts", "deno", "", ("deno", "run", "--allow-all", "/tmp/a.ts")),
        ("a.ts", "", "", ("bun", "run", "/tmp/a.ts")),
        ("a.ts", "", "paddock/deno:1", ("deno", "run", "--allow-all", "/tmp/a.ts")),
        ("a.js", "", "", ("node", "/tmp/a.js")),
        ("a.js", "mine", "", ("node", "/tmp/a.js")),
        ("a.mjs", "bun", "", ("bun", "run", "/tmp/a.mjs")),
        ("a.py", "bun", "", ("python3", "/tmp/a.py")),
    ],
)
def test_a_script_runs_in_the_runtime_of_its_template(
    tmp_path: Path, file: str, template: str, image: str, command: tuple[str, ...]
) -> None:
    (tmp_path / file).write_text("1")
    assert Job.of([], str(tmp_path / file), "", runtime_of(template, image)).command == command


def test_code_is_in_the_language_of_its_template() -> None:
    code = "console.log('Hello!')"
    assert Job.of([], "", code, runtime_of("bun", "")).command == ("bun", "--eval", code)
    assert Job.of([], "", code, runtime_of("deno", "")).command == ("deno", "eval", code)
    assert Job.of([], "", "1", runtime_of("", "registry.example:5000/team/node@sha256:00")).command[0] == "node"
    assert Job.of([], "", "1", runtime_of("python", "")).command == ("python3", "-c", "1")


def test_own_templates_serve_where_the_namespace_has_none(served: ApiStack, tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text("1")
    run(served, "--wait", "10ms", "-f", str(tmp_path / "a.ts"))
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.spec["template"]["image"] == "paddock/bun:1"
    assert stored.spec["template"]["securityLevel"] == "full-isolation"


def test_a_template_of_the_namespace_comes_before_an_own_one(served: ApiStack) -> None:
    served.apply(
        "apiVersion: paddock/v1alpha1\nkind: SandboxTemplate\nmetadata: {name: bun}\nspec: {image: example.org/bun:1}\n"
    )
    run(served, "--wait", "10ms", "--template", "bun", "-c", "1")
    (stored,) = served.store.list("Sandbox")[0]
    assert stored.spec["templateRef"] == {"name": "bun"}
