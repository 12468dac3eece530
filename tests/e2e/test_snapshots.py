"""Snapshots on the real engine: forks, a rollback, an archive that moves, and a daemon that dies in a capture."""

import json
import os
import signal
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import Paddock
from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
SECRET = "a secret of the host"
PROFILE = """
apiVersion: paddock/v1alpha1
kind: SecurityProfile
metadata: {name: writable}
spec: {base: full-isolation, readOnlyRootFilesystem: false}
"""
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: NAME}
spec:
  template:
    image: paddock/python:1
    command: ["sleep", "1000000"]
    securityLevel: writable
    workspace: {mountPath: /workspace}
    tmpfs: [{mountPath: /scratch, size: 8Mi}]
    secrets: [{name: token, mountPath: /opt/token}]
    volumes: [{name: shelf-NAME, mountPath: /shelf, size: 8Mi, reclaimPolicy: Delete}]
    volumeClaimTemplates: [{name: data, mountPath: /data, size: 8Mi, reclaimPolicy: Delete}]
  lifecycle: {keepRunning: true, shutdownGracePeriodSeconds: 0}
"""
PLACES = ("/var/tmp/f", "/workspace/f", "/tmp/f", "/scratch/f", "/shelf/f", "/data/f")
ALL = " ".join(PLACES)
READ = f"cat {ALL}; stat -c %a /var/tmp/f; stat -c %h /workspace/f; for f in {ALL}; do echo + >> $f; done"
WRITE = f"for f in {ALL}; do echo $f > $f; done; chmod 2755 /var/tmp/f; ln /workspace/f /workspace/g"
POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: prepared}
spec:
  image: paddock/python:1
  command: ["sleep", "1000000"]
  securityLevel: writable
  workspace: {mountPath: /workspace}
  restoreFrom: {snapshotRef: {name: prepared}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: prepared}
spec: {templateRef: {name: prepared}, warmReplicas: 1, shutdownGracePeriodSeconds: 0}
"""
CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: claimed}
spec: {templateRef: {name: prepared}, poolPolicy: Require, lifecycle: {shutdownGracePeriodSeconds: 0}}
"""
CUT = """
apiVersion: paddock/v1alpha1
kind: SandboxSnapshot
metadata: {name: cut}
spec: {sandboxRef: {name: k}}
"""
WRITTEN = "".join(f"{place}\n" for place in PLACES) + "2755\n2\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("snapshots")
    settings = {
        "PADDOCK_PROFILE_GRANTS": json.dumps({"writableRoot": True}),
        "PADDOCK_SECRETS_DIR": str(folder / "secrets"),
    }
    with running(folder / "state", **settings) as started:
        started.apply(PROFILE)
        started.paddock("secret", "set", "token", "--for", "sandboxes", stdin=SECRET)
        yield started


def start(daemon: RunningDaemon, name: str) -> None:
    daemon.apply(SANDBOX.replace("NAME", name))
    ready(daemon, name)


def ready(daemon: RunningDaemon, *names: str) -> None:
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", *(f"sandbox/{name}" for name in names))


def inside(daemon: RunningDaemon, name: str, script: str) -> str:
    return daemon.paddock("exec", name, "--", "sh", "-c", script).stdout


def snapshot(daemon: RunningDaemon, name: str) -> dict[str, object]:
    return daemon.object("sandboxsnapshots", name)


def test_forks_have_all_files_and_users_of_their_own(daemon: RunningDaemon) -> None:
    start(daemon, "a")
    inside(daemon, "a", WRITE)
    assert inside(daemon, "a", "cat /opt/token") == SECRET
    inside(daemon, "a", "python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind(\"/workspace/socket\")'")
    daemon.paddock("fork", "a", "--count", "2", "--name-prefix", "copy")
    ready(daemon, "copy-1", "copy-2")
    users = set()
    for name in ("copy-1", "copy-2"):
        assert inside(daemon, name, READ) == WRITTEN
        users.add(inside(daemon, name, "id -u; stat -c %u /var/tmp/f /data/f"))
    assert len(users) == 2
    assert inside(daemon, "a", READ) == WRITTEN
    name = daemon.get("copy-1")["spec"]["restoreFrom"]["snapshotRef"]["name"]
    status = snapshot(daemon, name)["status"]
    assert isinstance(status, dict)
    assert status["left"] == [{"name": "/workspace/socket", "reason": "it is a socket"}]
    folder = daemon.folder / "snapshots"
    assert not [path for path in folder.rglob("*.tar") if SECRET.encode() in path.read_bytes()]
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*.tar")}
    assert modes == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_rollback_gives_back_all_files_once(daemon: RunningDaemon) -> None:
    start(daemon, "r")
    inside(daemon, "r", WRITE)
    daemon.paddock("snapshot", "create", "before", "--from", "sandbox/r")
    inside(
        daemon,
        "r",
        "rm /var/tmp/f /workspace/* /shelf/f /tmp/f; echo x > /scratch/g; echo changed > /data/f; touch /data/more",
    )
    before = daemon.get("r")["metadata"]["generation"]
    done = daemon.paddock("rollback", "r", "--to", "before")
    backup = done.stderr.split("sandboxsnapshot/")[1].split()[0]
    wait_for("the new container", lambda: daemon.condition("r", "Ready").get("observedGeneration", 0) > before)
    ready(daemon, "r")
    assert inside(daemon, "r", READ) == WRITTEN
    assert inside(daemon, "r", "ls /data /scratch") == "/data:\nf\n\n/scratch:\nf\n"
    assert snapshot(daemon, backup)["status"]["sandboxUID"] == daemon.get("r")["metadata"]["uid"]  # type: ignore[index]
    daemon.paddock("restart", "r")
    assert inside(daemon, "r", "cat /shelf/f /data/f") == "/shelf/f\n+\n/data/f\n+\n"


def test_an_export_moves_and_a_damaged_one_is_refused(daemon: RunningDaemon, tmp_path: Path) -> None:
    start(daemon, "e")
    inside(daemon, "e", WRITE)
    daemon.paddock("snapshot", "create", "moving", "--from", "sandbox/e")
    file = tmp_path / "moving.tar"
    daemon.paddock("snapshot", "export", "moving", str(file))
    with tarfile.open(file) as archive:
        assert {"oci-layout", "index.json"} <= set(archive.getnames())
    daemon.paddock("snapshot", "import", "moved", str(file))
    daemon.paddock("fork", "e", "--snapshot", "moved", "--name-prefix", "moved")
    ready(daemon, "moved-1")
    assert inside(daemon, "moved-1", READ) == WRITTEN.replace("2755", "755")
    data = bytearray(file.read_bytes())
    data[data.index(b"/shelf/f\n")] ^= 1
    file.write_bytes(data)
    output = daemon.paddock("snapshot", "import", "bad", str(file), check=False)
    assert "hash" in output.stderr
    assert daemon.paddock("get", "snapshot", "bad", check=False).returncode == 1


def test_a_suspended_sandbox_is_captured_without_a_start(daemon: RunningDaemon) -> None:
    start(daemon, "s")
    inside(daemon, "s", WRITE)
    daemon.paddock("set", "run-state", "sandbox/s", "Suspended")
    daemon.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/s")
    daemon.paddock("snapshot", "create", "asleep", "--from", "sandbox/s")
    assert "\npaddock_snapshot_last_capture_timestamp_seconds " in daemon.scrape()
    assert daemon.condition("s", "Suspended")["status"] == "True"
    daemon.paddock("fork", "s", "--snapshot", "asleep", "--name-prefix", "awake")
    ready(daemon, "awake-1")
    assert inside(daemon, "awake-1", READ) == WRITTEN


def test_a_paused_sandbox_is_captured_and_stays_paused(daemon: RunningDaemon) -> None:
    start(daemon, "z")
    inside(daemon, "z", WRITE)
    daemon.paddock("set", "run-state", "sandbox/z", "Paused")
    wait_for("it is paused", lambda: daemon.condition("z", "Ready").get("reason") == "Paused")
    daemon.paddock("snapshot", "create", "paused", "--from", "sandbox/z")
    assert daemon.condition("z", "Ready")["reason"] == "Paused"
    daemon.paddock("fork", "z", "--snapshot", "paused", "--name-prefix", "zz")
    ready(daemon, "zz-1")
    assert inside(daemon, "zz-1", READ) == WRITTEN


def test_programs_fork_and_roll_back(daemon: RunningDaemon) -> None:
    start(daemon, "p")
    with Paddock(f"unix://{daemon.socket}") as paddock:
        sandbox = paddock.sandboxes.get("p")
        sandbox.run("echo one > /workspace/f")
        occupied = sandbox.snapshot()
        sandbox.run("echo two > /workspace/f")
        copies = sandbox.fork(2, name_prefix="pp")
        assert [copy.run("cat /workspace/f").stdout for copy in copies] == ["two\n", "two\n"]
        sandbox.rollback(occupied["metadata"]["name"], backup=False)
        assert sandbox.run("cat /workspace/f").stdout == "one\n"


def test_a_pool_begins_from_a_snapshot(daemon: RunningDaemon) -> None:
    start(daemon, "q")
    inside(daemon, "q", "echo warm > /workspace/f; echo warm > /var/tmp/f; echo warm > /tmp/f")
    daemon.paddock("snapshot", "create", "prepared", "--from", "sandbox/q")
    daemon.apply(POOL)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandboxpool/prepared")
    daemon.apply(CLAIM)
    ready(daemon, "claimed")
    assert daemon.get("claimed")["status"]["launchType"] == "Warm"
    assert inside(daemon, "claimed", "cat /workspace/f /var/tmp/f /tmp/f") == "warm\n" * 3


def test_a_killed_daemon_leaves_nothing_frozen(daemon: RunningDaemon) -> None:
    start(daemon, "k")
    many = "for i in range(20000): open(f'/var/tmp/{i}', 'w').write('x')"
    inside(daemon, "k", f'python3 -c "{many}"; echo . > /workspace/f')
    container = daemon.get("k")["status"]["instanceRef"]["name"]
    output = subprocess.run(
        ["docker", "inspect", "-f", "{{.State.Pid}}", container], capture_output=True, text=True, check=True
    )
    frozen = freezer(int(output.stdout))
    daemon.apply(CUT)
    wait_for("a frozen sandbox", lambda: frozen.read_text().strip() in ("FROZEN", "1") and stand_still(daemon), 20)
    for worker in captures(daemon.folder):
        os.kill(worker, signal.SIGKILL)
    assert frozen.read_text().strip() in ("FROZEN", "1"), "both are gone in the middle of the capture"
    daemon.kill()
    daemon.start_again()
    wait_for("a thawed sandbox", lambda: frozen.read_text().strip() in ("THAWED", "0"), 30)
    daemon.paddock("wait", "--for=condition=Captured", "--timeout=60s", "sandboxsnapshot/cut")
    assert inside(daemon, "k", "cat /workspace/f") == ".\n"


def stand_still(daemon: RunningDaemon) -> bool:
    """Stop the daemon, which would thaw a sandbox, and its workers, which would be done."""
    assert daemon.process.pid is not None
    children = Path(f"/proc/{daemon.process.pid}/task").glob("*/children")
    workers = [int(worker) for thread in children for worker in thread.read_text().split()]
    for process in (*workers, daemon.process.pid):
        os.kill(process, signal.SIGSTOP)
    return True


def freezer(process: int) -> Path:
    """Return the file that tells if a process's cgroup is frozen."""
    lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    if "freezer" in paths:
        return Path(f"/sys/fs/cgroup/freezer{paths['freezer']}/freezer.state")
    return Path(f"/sys/fs/cgroup{paths['']}/cgroup.freeze")


def captures(folder: Path) -> list[int]:
    """Return the worker processes that write below this state folder."""
    workers = []
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(fd).startswith(f"{folder}/snapshots/"):
                workers.append(int(fd.parts[2]))
        except OSError:
            continue
    return sorted({worker for worker in workers if worker != os.getpid()})
