"""`paddock delete` and `paddock wait`: requests, waiting, and the obstacle at a timeout."""

import threading
from collections.abc import Callable

import pytest

from controller.cli.text.progress import Waiting
from tests.cli.conftest import Run
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack

Spec = Callable[..., str]
POOL = """\
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: tiny:1}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 1}
"""
OTHER = QUICKSTART.replace("name: quickstart", "name: other")


def once_watched(api: ApiStack, action: Callable[[], object]) -> threading.Thread:
    """Run this once the command watches; join the returned thread."""

    def run() -> None:
        wait_for("it watches", lambda: api.services.watches.count)
        action()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def one(served: ApiStack) -> ApiStack:
    served.apply()
    return served


def test_delete_waits_until_it_is_gone(paddock: Run, one: ApiStack) -> None:
    waiting = once_watched(one, one.finish_deletion)
    done = paddock("delete", "sandbox", "quickstart")
    waiting.join()
    assert (done.exit_code, done.stdout) == (0, 'sandbox.paddock "quickstart" deleted\n')


def test_delete_without_wait_and_with_timeout(paddock: Run, one: ApiStack) -> None:
    assert paddock("delete", "sb/quickstart", "--no-wait").exit_code == 0
    late = paddock("delete", "sb/quickstart", "--timeout", "0")
    assert late.exit_code == 1
    assert "timed out after 0 s; not deleted yet: sandbox.paddock/quickstart" in late.stderr


def test_delete_ends_when_another_object_took_the_name(paddock: Run, one: ApiStack) -> None:
    def replace() -> None:
        one.finish_deletion()
        one.apply()

    waiting = once_watched(one, replace)
    assert paddock("delete", "sb", "quickstart").exit_code == 0
    waiting.join()


def test_missing_objects(paddock: Run, one: ApiStack) -> None:
    done = paddock("delete", "sb", "nope", "quickstart", "--no-wait")
    assert (done.exit_code, done.stdout) == (1, 'sandbox.paddock "quickstart" deleted\n')
    assert "sandboxes `nope` not found" in done.stderr
    assert paddock("delete", "sb", "nope", "--ignore-not-found").exit_code == 0


def test_by_file_by_label_and_all(paddock: Run, one: ApiStack, spec: Spec) -> None:
    assert paddock("delete", "-f", spec(), "--no-wait").stdout == 'sandbox.paddock "quickstart" deleted\n'
    one.apply(OTHER)
    assert paddock("delete", "sb", "-l", "app=x").stderr == "No resources found.\n"
    assert paddock("delete", "sb", "--all", "--no-wait").stdout.count("deleted") == 2
    assert one.sandbox("other").deleted_at is not None


@pytest.mark.parametrize("by_name", [False, True])
def test_pool_is_deleted_before_its_template(paddock: Run, one: ApiStack, spec: Spec, by_name: bool) -> None:
    one.apply(POOL)
    done = paddock("delete", *(("sbt/tiny", "sbp/warm") if by_name else ("-f", spec(POOL))), "--no-wait")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == 'sandboxpool.paddock "warm" deleted\nsandboxtemplate.paddock "tiny" deleted\n'
    late = paddock("delete", "sbt", "tiny", "--timeout", "0")
    message = "not deleted yet: sandboxtemplate.paddock/tiny (is being deleted; finalizers: paddock/in-use);"
    assert (late.exit_code, message in late.stderr) == (1, True)


def test_refused_object_does_not_stop_the_others(paddock: Run, one: ApiStack, spec: Spec) -> None:
    one.apply(POOL + "---\n" + OTHER.split("spec:")[0] + "spec: {templateRef: {name: tiny}}\n")
    done = paddock("delete", "-f", spec(POOL), "--no-wait")
    assert (done.exit_code, done.stdout) == (1, 'sandboxpool.paddock "warm" deleted\n')
    assert done.stderr == "error: sandboxtemplate `tiny` is used by sandbox other; delete or change those first\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no objects given"),
        (["sb"], "add --all or -l"),
        (["sb", "a", "--all"], "can't be combined"),
        (["sb", "a", "--timeout", "soon"], "is not a valid duration"),
    ],
)
def test_nothing_is_deleted_by_accident(paddock: Run, one: ApiStack, words: list[str], said: str) -> None:
    done = paddock("delete", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert one.sandbox().deleted_at is None


def test_wait_for_a_condition(paddock: Run, one: ApiStack) -> None:
    waiting = once_watched(one, one.set_ready)
    done = paddock("wait", "--for=condition=Ready", "sandbox/quickstart", "--timeout=20s")
    waiting.join()
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart condition met\n")
    assert paddock("wait", "--for=condition=ready=true", "sb", "quickstart", "--timeout=0").exit_code == 0


def test_a_condition_of_an_older_generation_does_not_count(paddock: Run, one: ApiStack) -> None:
    one.set_ready()
    one.apply(QUICKSTART.replace("512Mi", "1Gi"))
    assert paddock("wait", "--for=condition=Ready", "sb/quickstart", "--timeout=0").exit_code == 1


def test_timeout_reports_the_condition(paddock: Run, one: ApiStack) -> None:
    late = paddock("wait", "--for=condition=Ready", "sb/quickstart", "--timeout=0")
    assert (late.exit_code, late.stderr) == (
        1,
        "error: timed out after 0 s\nsandbox.paddock/quickstart: has no condition Ready yet\n",
    )
    one.set_ready("False", "ImagePullFailed", "no such image; build it")
    late = paddock("wait", "--for=condition=Ready", "sb", "--all", "--timeout=100ms")
    assert late.stderr.endswith("sandbox.paddock/quickstart: Ready=False ImagePullFailed: no such image; build it\n")


def test_each_new_reason_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = Waiting(None)
    waiting.report("a", "Pulling", "pulls x:1")
    waiting.report("a", "QuotaExceeded", "0 of 1 cores are left")
    waiting.report("b", "QuotaExceeded", "0 of 1 cores are left")
    assert capsys.readouterr().err == "", "nothing is told of what takes less than a second"
    waiting.show()
    waiting.report("a", "QuotaExceeded", "0.5 of 1 cores are left")
    waiting.report("a", "", "starts")
    waiting.report("a", "ImagePullFailed", "no such image")
    assert capsys.readouterr().err.splitlines() == [
        "waiting for a: 0 of 1 cores are left",
        "waiting for b: 0 of 1 cores are left",
        "waiting for a: no such image",
    ]


def test_wait_prints_reasons_off_a_terminal(paddock: Run, one: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cli.text.progress._AFTER_SECONDS", 0)
    one.set_ready("False", "NoDeviceDriver", "no driver for gpus; install one")
    done = paddock("wait", "--for=condition=Ready", "sb/quickstart", "--timeout=1s")
    why = "Ready=False NoDeviceDriver: no driver for gpus; install one"
    assert done.stderr.splitlines() == [
        f"waiting for sandbox.paddock/quickstart: {why}",
        "error: timed out after 1 s",
        f"sandbox.paddock/quickstart: {why}",
    ]


def test_wait_for_a_value_reports_readiness(paddock: Run, one: ApiStack) -> None:
    one.set_ready("False", "QuotaExceeded", "0 of 1 cores are left")
    late = paddock("wait", "--for=jsonpath={.status.launchType}=Warm", "sb/quickstart", "--timeout=0")
    message = "{.status.launchType} is not set; Ready=False QuotaExceeded: 0 of 1 cores are left\n"
    assert late.stderr.endswith(message)


def test_wait_for_deletion(paddock: Run, one: ApiStack) -> None:
    late = paddock("wait", "--for=delete", "sb/quickstart", "--timeout=0")
    assert "is not being deleted; finalizers: paddock/container" in late.stderr
    one.finish_deletion()
    assert paddock("wait", "--for=delete", "sb/quickstart").stdout == "sandbox.paddock/quickstart deleted\n"


def test_wait_for_a_missing_object_fails_at_once(paddock: Run, served: ApiStack) -> None:
    done = paddock("wait", "--for=condition=Ready", "sb/nope")
    assert (done.exit_code, "`nope` not found" in done.stderr) == (1, True)
    assert paddock("wait", "--for=condition=Ready", "sb", "--all").exit_code == 1
    assert paddock("wait", "--for=readiness", "sb/nope").exit_code == 2


def test_wait_for_creation(paddock: Run, served: ApiStack) -> None:
    waiting = once_watched(served, served.apply)
    done = paddock("wait", "--for=create", "sb/quickstart", "--timeout=20s")
    waiting.join()
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart created\n")
    late = paddock("wait", "--for=create", "sb/nope", "--timeout=0")
    assert (late.exit_code, late.stderr) == (1, "error: timed out after 0 s\nsandbox.paddock/nope: does not exist\n")


def test_wait_for_a_value(paddock: Run, one: ApiStack) -> None:
    goal = "--for=jsonpath={.status.restartCount}"
    waiting = once_watched(one, one.set_ready)
    done = paddock("wait", f"{goal}=2", "sb", "quickstart", "--timeout=20s")
    waiting.join()
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart condition met\n")
    assert paddock("wait", goal, "sb/quickstart", "--timeout=0").exit_code == 0
    late = paddock("wait", f"{goal}=3", "sb/quickstart", "--timeout=200ms")
    assert late.stderr.endswith("sandbox.paddock/quickstart: {.status.restartCount} is 2\n")
    assert paddock("wait", "--for=jsonpath={.a[}=1", "sb/quickstart").exit_code == 2


def test_wait_for_several_objects(paddock: Run, one: ApiStack) -> None:
    one.apply(OTHER)
    ready = {"type": "Ready", "status": "True", "reason": "Running", "observedGeneration": 1}

    def later() -> None:
        for name in ("other", "quickstart"):
            one.change(name, status={"conditions": [ready]})

    waiting = once_watched(one, later)
    done = paddock("wait", "--for=condition=Ready", "sb", "quickstart", "other", "--timeout=20s")
    waiting.join()
    assert sorted(done.stdout.split()[::3]) == ["sandbox.paddock/other", "sandbox.paddock/quickstart"]


def test_wait_fails_when_the_object_is_deleted(paddock: Run, one: ApiStack) -> None:
    waiting = once_watched(one, one.finish_deletion)
    done = paddock("wait", "--for=condition=Ready", "sb/quickstart", "--timeout=20s")
    waiting.join()
    assert (done.exit_code, "`quickstart` not found" in done.stderr) == (1, True)
