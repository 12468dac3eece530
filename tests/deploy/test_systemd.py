"""deploy/install.sh and the unit under a real systemd, with an engine of its own: `make test-systemd`, some minutes.

One story: what is upgraded or taken away was installed before.
"""

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import wait_for
from tests.deploy.conftest import CHECKOUT
from tests.lab.systemd import Machine, systemd_machine

pytestmark = [pytest.mark.docker, pytest.mark.systemd, pytest.mark.timeout(1800)]
FOLDERS, FILES = (
    ("deploy", "controller", "migrations", "images", "specs"),
    ("pyproject.toml", "requirements.lock", "README.md", "LICENSE"),
)
SOURCE = "/srv/paddock"
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: kept}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi, cpu: 100m, pids: 16}}
  lifecycle: {shutdownGracePeriodSeconds: 0, keepRunning: true}
"""
# The watchdog's own time, 180 s, is long for a test: the loop says at least every 10 s that it turns.
WATCHDOG = "[Service]\nWatchdogSec=30\n"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with systemd_machine() as created:
        created.run("systemctl", "start", "docker", seconds=180)
        saved = subprocess.run(["docker", "save", "paddock/test-tiny:1"], check=True, capture_output=True, timeout=120)
        engine = ["docker", "-H", f"unix://{created.root}/run/docker.sock", "load", "-q"]
        subprocess.run(engine, input=saved.stdout, check=True, timeout=120)
        yield created


@pytest.fixture(scope="module")
def source(machine: Machine) -> Path:
    """A checkout in there, which can be changed."""
    folder = machine.root / SOURCE.removeprefix("/")
    folder.mkdir(parents=True)
    for name in FOLDERS:
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(CHECKOUT / file, folder / file)
    return folder


def install(machine: Machine, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    message = {"PADDOCK_DAEMON_TIMEOUT": "120", "TMPDIR": "/tmp"}
    return machine.run(f"{SOURCE}/deploy/install.sh", check=check, seconds=900, **message)


def another_version(source: Path, number: str) -> None:
    path = source / "controller/version.py"
    path.write_text(re.sub(r'^VERSION = ".*"', f'VERSION = "{number}"', path.read_text(), flags=re.MULTILINE))


def version(machine: Machine) -> str:
    return os.readlink(machine.root / "usr/local/lib/paddock/current")


def paddock(machine: Machine, *words: str, stdin: str | None = None) -> str:
    return machine.run("/usr/local/bin/paddock", *words, stdin=stdin).stdout


def container(machine: Machine) -> dict[str, str]:
    document = json.loads(paddock(machine, "get", "sandbox", "kept", "-o", "json"))
    name = document["status"]["instanceRef"]["name"]
    parts = machine.run("docker", "inspect", "-f", "{{.Id}} {{.State.Pid}} {{.State.StartedAt}}", name).stdout.split()
    return dict(zip(("id", "pid", "started"), parts, strict=True))


def test_it_is_installed_and_starts_hardened(machine: Machine, source: Path) -> None:
    install(machine)
    assert machine.shows("paddock", "ActiveState") == "active", machine.journal("paddock")
    assert machine.shows("paddock", "Type") == "notify"
    assert machine.run("systemctl", "is-enabled", "paddock").stdout.strip() == "enabled"
    socket = (machine.root / "run/paddock/paddock.sock").stat()
    group = machine.run("getent", "group", "paddock").stdout.split(":")[2]
    assert (stat.S_IMODE(socket.st_mode), socket.st_gid) == (0o660, int(group))
    assert stat.S_IMODE((machine.root / "var/lib/paddock").stat().st_mode) == 0o700
    machine.run("systemd-analyze", "security", "--threshold=55", "paddock")  # in tenths: fails when it is more exposed
    inside = (machine.root / f"proc/{machine.shows('paddock', 'MainPID')}/status").read_text()
    assert "NoNewPrivs:\t1\n" in inside
    assert "Seccomp:\t2\n" in inside


def test_it_keeps_a_sandbox_with_the_privileges_that_it_has(machine: Machine) -> None:
    paddock(machine, "apply", "-f", "-", stdin=SANDBOX)
    paddock(machine, "wait", "--for=condition=Ready", "--timeout=90s", "sandbox/kept")
    paddock(machine, "wait", "--for=condition=Secured", "--timeout=30s", "sandbox/kept")
    assert paddock(machine, "exec", "kept", "--", "echo", "hello") == "hello\n"


def test_it_captures_and_suspends_under_its_hardening(machine: Machine) -> None:
    """A capture freezes by the cgroup, a suspension reads folders in memory: both need what the unit may forbid."""
    paddock(machine, "exec", "kept", "--", "sh", "-c", "echo work > /workspace/f; chmod 2640 /workspace/f")
    paddock(machine, "snapshot", "create", "moment", "--from", "sandbox/kept")
    paddock(machine, "wait", "--for=condition=Captured", "--timeout=60s", "sandboxsnapshot/moment")
    paddock(machine, "set", "run-state", "sandbox/kept", "Suspended")
    paddock(machine, "wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/kept")
    paddock(machine, "set", "run-state", "sandbox/kept", "Running")
    paddock(machine, "wait", "--for=condition=Ready", "--timeout=60s", "sandbox/kept")
    assert paddock(machine, "exec", "kept", "--", "cat", "/workspace/f") == "work\n"
    assert paddock(machine, "exec", "kept", "--", "stat", "-c", "%a", "/workspace/f") == "2640\n"
    paddock(machine, "fork", "kept", "--snapshot", "moment", "--name-prefix", "copy")
    paddock(machine, "wait", "--for=condition=Ready", "--timeout=60s", "sandbox/copy-1")
    assert paddock(machine, "exec", "copy-1", "--", "cat", "/workspace/f") == "work\n"
    paddock(machine, "delete", "sandbox", "copy-1")
    paddock(machine, "delete", "sandboxsnapshot", "moment")


def test_a_daemon_that_hangs_is_restarted_and_sandboxes_run_on(machine: Machine) -> None:
    machine.write("/etc/systemd/system/paddock.service.d/lab.conf", WATCHDOG)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "paddock")
    before, sandbox = machine.shows("paddock", "MainPID"), container(machine)
    machine.run("kill", "-STOP", before)
    wait_for("another one runs", lambda: machine.shows("paddock", "NRestarts") == "1", 120)
    wait_for("it is ready", lambda: machine.shows("paddock", "ActiveState") == "active", 120)
    assert machine.shows("paddock", "MainPID") not in (before, "0")
    assert "Watchdog timeout" in machine.journal("paddock")
    assert container(machine) == sandbox
    assert paddock(machine, "exec", "kept", "--", "echo", "hello") == "hello\n"


def test_a_version_that_does_not_get_ready_is_taken_back(machine: Machine, source: Path) -> None:
    before, sandbox, app = version(machine), container(machine), source / "controller/app/daemon.py"
    good = app.read_text()
    assert good.count("    configure_logs(settings)\n") == 1
    app.write_text(good.replace("    configure_logs(settings)\n", '    raise SystemExit("broken")\n'))
    another_version(source, "0.98.0")
    machine.write("/etc/systemd/system/paddock.service.d/lab.conf", "[Service]\nTimeoutStartSec=20\n")
    done = install(machine, check=False)
    app.write_text(good)
    assert done.returncode == 1, done.stdout
    assert re.search(rf"Paddock 0\.98\.0\+\w+ did not get ready, so {re.escape(before)} runs again", done.stderr)
    assert (version(machine), machine.shows("paddock", "ActiveState")) == (before, "active")
    assert container(machine) == sandbox


def test_an_upgrade_keeps_data_and_sandboxes(machine: Machine, source: Path) -> None:
    sandbox = container(machine)
    another_version(source, "0.99.0")
    install(machine)
    assert version(machine).startswith("0.99.0+")
    assert paddock(machine, "version").count("0.99.0") >= 1
    assert container(machine) == sandbox
    saved = list((machine.root / "var/lib/paddock").glob("before-upgrade-*.db"))
    assert len(saved) == 2  # of the upgrade that was taken back, too


def test_it_goes_and_leaves_the_sandboxes(machine: Machine) -> None:
    sandbox = container(machine)
    machine.run(f"{SOURCE}/deploy/uninstall.sh", "--purge")
    assert machine.shows("paddock", "LoadState") == "not-found"
    parts = machine.run("docker", "ps", "-q", "--no-trunc", "--filter", "label=paddock.instance").stdout.split()
    assert parts == [sandbox["id"]]
    for entry in ("etc/paddock", "var/lib/paddock", "usr/local/lib/paddock", "usr/local/bin/paddock", "run/paddock"):
        assert not (machine.root / entry).exists(), entry
    assert machine.run("getent", "group", "paddock", check=False).returncode == 2
