"""Files in memory of idle sandboxes, on a real engine: there again at the next use, whatever was killed meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, docker, running, wait_for

pytestmark = pytest.mark.docker

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template:
    image: "paddock/test-tiny:1"
    command: ["sh", "-c", "trap 'echo bye > /workspace/clean; exit 0' TERM; sleep 1000000 & wait"]
  lifecycle: {shutdownGracePeriodSeconds: 5, %s}
"""
WRITE = "echo a > /tmp/file; mkdir /workspace/d; echo b > /workspace/d/file; ln /workspace/d/file /workspace/link"
READ = ["sh", "-c", "cat /tmp/file /workspace/d/file /workspace/link; stat -c %h%u /workspace/link; id -u"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def container(daemon: RunningDaemon, name: str, form: str) -> str:
    own_texts = ("--filter", f"label=paddock.name={name}", "--filter", f"label=paddock.instance={daemon.instance_id()}")
    return docker("ps", "-a", *own_texts, "--format", form)


def archives(daemon: RunningDaemon) -> list[Path]:
    return sorted((daemon.folder / "files").rglob("*.tar"))


def written(daemon: RunningDaemon, name: str, lifecycle: str = "keepRunning: true") -> str:
    """Return what a new sandbox reads of what it wrote."""
    daemon.apply(SANDBOX % (name, lifecycle))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")
    daemon.paddock("exec", name, "--", "sh", "-c", WRITE)
    return daemon.paddock("exec", name, "--", *READ).stdout


def test_idle_sandbox_has_its_files_at_the_next_use(daemon: RunningDaemon) -> None:
    before = written(daemon, "dozing", "idleTimeoutSeconds: 3")
    wait_for("its files are saved", lambda: daemon.condition("dozing", "FilesKept").get("reason") == "Saved")
    assert container(daemon, "dozing", "{{.State}}") == "exited"
    assert {archive.stat().st_mode & 0o777 for archive in archives(daemon)} == {0o600}
    assert (daemon.folder / "files").stat().st_mode & 0o777 == 0o700
    assert daemon.paddock("exec", "dozing", "--", *READ).stdout == before
    assert daemon.paddock("exec", "dozing", "--", "cat", "/workspace/clean").stdout == "bye\n", "it could clean up"
    assert daemon.condition("dozing", "Secured")["reason"] == "Attested"
    daemon.paddock("delete", "sandbox", "dozing")
    assert archives(daemon) == []


def test_killed_container_and_daemon_lose_no_file(daemon: RunningDaemon) -> None:
    before = written(daemon, "stubborn")
    docker("kill", container(daemon, "stubborn", "{{.ID}}"))
    wait_for("it runs again", lambda: daemon.get("stubborn")["status"]["restartCount"] == 1)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/stubborn")
    assert daemon.paddock("exec", "stubborn", "--", *READ).stdout == before
    daemon.paddock("set", "run-state", "sandbox/stubborn", "Suspended")
    wait_for("it stops", lambda: container(daemon, "stubborn", "{{.State}}") == "exited")
    daemon.kill()  # in the middle of the save, or just before or after it
    daemon.start_again()
    wait_for("its files are saved", lambda: daemon.condition("stubborn", "FilesKept").get("reason") == "Saved")
    daemon.kill()
    daemon.start_again()
    daemon.paddock("set", "run-state", "sandbox/stubborn", "Running")
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/stubborn")
    assert daemon.paddock("exec", "stubborn", "--", *READ).stdout == before
    assert archives(daemon) == []


def test_recreated_sandbox_keeps_its_files_in_memory(daemon: RunningDaemon) -> None:
    before = written(daemon, "renewed")
    first = container(daemon, "renewed", "{{.ID}}")
    daemon.paddock("set", "env", "sandbox/renewed", "A=1")
    wait_for("another container runs", lambda: container(daemon, "renewed", "{{.ID}}") not in ("", first))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/renewed")
    assert daemon.paddock("exec", "renewed", "--", *READ).stdout == before
