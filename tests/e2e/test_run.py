"""`paddock run`: a sandbox for one command, removed however it ends."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import ROOT, RunningDaemon, running, wait_for

pytestmark = pytest.mark.docker
POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"], resources: {limits: {memory: 32Mi}}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: tiny}
spec: {templateRef: {name: tiny}, warmReplicas: 1, maxReplicas: 4}
"""
FULL = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: q, namespace: full}
spec: {hard: {memory: 600Mi}}
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: holder, namespace: full}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 200Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        created.apply(POOL)
        yield created


def sandboxes(daemon: RunningDaemon) -> str:
    return daemon.paddock("get", "sandboxes", "-l", "app=paddock-run", "-o", "name").stdout


def none_left(daemon: RunningDaemon) -> None:
    wait_for("the box's removal", lambda: not sandboxes(daemon))


def test_code_runs_and_its_exit_code_is_passed_on(daemon: RunningDaemon) -> None:
    code = "import sys; print(6 * 7); print('err', file=sys.stderr); sys.exit(int(sys.argv[1]))"
    done = daemon.paddock(*daemon.run, "-c", code, "--", "3", check=False)
    assert (done.returncode, done.stdout) == (3, "42\n")
    assert done.stderr.splitlines()[-1] == "err", "on a busy host it says before what it waits for"
    none_left(daemon)


def test_a_script_runs_with_its_arguments_and_stdin(daemon: RunningDaemon, tmp_path: Path) -> None:
    script = tmp_path / "hello.sh"
    script.write_text('echo "$1"; cat; exit 4\n')
    done = daemon.paddock(
        *daemon.run, "--template", "tiny", "-i", "-f", str(script), "--", "a b", stdin="input\n", check=False
    )
    assert (done.returncode, done.stdout) == (4, "a b\ninput\n")
    none_left(daemon)


def test_a_detached_command_stays_with_its_log(daemon: RunningDaemon, tmp_path: Path) -> None:
    script = tmp_path / "hello.sh"
    script.write_text('echo "$A $1"; exec sleep 1000\n')
    arguments = ("-d", "--template", "tiny", "--name", "long", "-e", "A=hello", "-f", str(script), "--", "there")
    assert daemon.paddock(*daemon.run, *arguments).stdout == "long\n"
    wait_for("its line", lambda: daemon.paddock("logs", "long").stdout == "hello there\n")
    daemon.paddock("sandbox", "stop", "long")
    daemon.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/long")
    daemon.paddock("delete", "sandbox/long")
    # One that ends at once did begin.
    assert (
        daemon.paddock(*daemon.run, "-d", "--name", "short", "--", "sh", "-c", "echo done; exit 3").stdout == "short\n"
    )
    daemon.paddock("wait", "--for=condition=Finished", "--timeout=60s", "sandbox/short")
    assert daemon.paddock("logs", "short").stdout == "done\n"
    assert daemon.get("short")["status"]["lastTermination"]["exitCode"] == 3
    daemon.paddock("delete", "sandbox/short")
    absent = daemon.paddock(
        *daemon.run, "-d", "--wait", "5s", "--image", "paddock/none-such:1", "--", "true", check=False
    )
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "none-such" in absent.stderr
    assert daemon.paddock(*daemon.run, "-d", "--rm", "--template", "tiny", "--", "true").stdout.startswith("run-")
    none_left(daemon)


def test_a_program_that_is_not_in_the_image(daemon: RunningDaemon) -> None:
    done = daemon.paddock(*daemon.run, "paddock/python:1", "no-such-program", check=False)
    assert done.returncode in (126, 127)
    assert done.stderr.startswith('executable "no-such-program" is not in the image paddock/python:1; ')
    none_left(daemon)


def test_an_image_that_is_missing_ends_it(daemon: RunningDaemon) -> None:
    done = daemon.paddock(*daemon.run, "--wait", "10m", "paddock/none-such:1", "true", check=False)
    assert (done.returncode, "; images here: " in done.stderr) == (1, True)
    assert "build.sh" not in done.stderr
    none_left(daemon)


def test_a_full_quota_is_reported_while_waiting(daemon: RunningDaemon) -> None:
    daemon.apply(FULL)
    daemon.paddock("wait", "-n", "full", "--for=condition=Ready", "--timeout=60s", "sandbox/holder")
    command = [sys.executable, "-m", "controller", *daemon.run, "-n", "full", "-c", "print(6 * 7)"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=daemon.environment, text=True, **streams) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert re.match(r"waiting for sandbox run-\w+: Ready=False QuotaExceeded: quota full/q: memory: ", line)
        daemon.paddock("delete", "-n", "full", "sandbox/holder")
        assert process.communicate(timeout=120) == ("42\n", "")


def test_a_ready_pool_member_is_claimed(daemon: RunningDaemon) -> None:
    daemon.paddock("wait", "--for=jsonpath={.status.readyReplicas}=1", "--timeout=60s", "sandboxpool/tiny")
    process = start(daemon, *daemon.run, "--template", "tiny", "--", "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    (name,) = sandboxes(daemon).split()
    assert daemon.get(name.partition("/")[2])["status"]["launchType"] == "Warm"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    none_left(daemon)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupt_cleans_up(daemon: RunningDaemon, number: signal.Signals, code: int) -> None:
    process = start(daemon, *daemon.run, "--template", "tiny", "--", "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    none_left(daemon)


def test_a_failed_start_is_reported_and_removed(daemon: RunningDaemon) -> None:
    done = daemon.paddock(*daemon.run, "--template", "nope", "--", "true", check=False)
    assert done.returncode == 1
    assert "nope" in done.stderr
    done = daemon.paddock(*daemon.run, "--level", "nope", "-c", "1", check=False)
    assert done.returncode == 1
    assert "nope" in done.stderr
    none_left(daemon)


def test_a_killed_clients_sandbox_is_removed_when_idle(daemon: RunningDaemon) -> None:
    process = start(daemon, *daemon.run, "--template", "tiny", "--", "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.communicate(timeout=60)
    name = sandboxes(daemon).strip().partition("/")[2]
    lifecycle = daemon.get(name)["spec"]["lifecycle"]
    assert (lifecycle["idleTimeoutSeconds"], lifecycle["onIdle"]) == (60, "Delete")
    # As that time over, without the wait; that idleness is counted from the last use is test_idle's.
    daemon.paddock("patch", "sandbox", name, "-p", '{"spec": {"lifecycle": {"idleTimeoutSeconds": 3}}}')
    wait_for("the box's removal", lambda: not sandboxes(daemon), 60)


def start(daemon: RunningDaemon, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "controller", *words]
    return subprocess.Popen(command, cwd=ROOT, env=daemon.environment, stdout=subprocess.PIPE, text=True)
