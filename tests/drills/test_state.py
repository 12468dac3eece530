"""The engine is killed in a capture, in the save of a suspension, and in a start that puts files back: none is lost."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, start_daemon, wait_for
from tests.e2e.test_snapshots import CUT, PROFILE, freezer
from tests.lab.engine import PrivateEngine, private_engine
from tests.mounts import unmount_below

pytestmark = [pytest.mark.drill, pytest.mark.docker, pytest.mark.timeout(600)]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: k}
spec:
  template:
    image: "paddock/python:1"
    command: ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    securityLevel: writable
    tmpfs: [{mountPath: /scratch, size: 64Mi}]
    volumes: [{name: shelf, mountPath: /shelf, size: 16Mi, reclaimPolicy: Delete}]
  lifecycle: {keepRunning: true, shutdownGracePeriodSeconds: 5}
"""
# Some thousand files, so that copying them takes a while, and a line more for each life.
PLACES = "/scratch /shelf /var/tmp"
FILL = f"for n in $(seq 4000); do echo $n > /scratch/$n; done; for p in {PLACES}; do echo 0 > $p/lives; done"
COUNT = "ls /scratch | wc -l; cat /scratch/lives /shelf/lives /var/tmp/lives"
LIVE = f"for p in {PLACES}; do echo $0 >> $p/lives; done"


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    with private_engine(images=("paddock/python:1",)) as private:
        yield private


@contextmanager
def daemon_of(folder: Path, engine: PrivateEngine) -> Iterator[RunningDaemon]:
    settings = {
        "PADDOCK_DOCKER_HOST": engine.base_url,
        "PADDOCK_PROFILE_GRANTS": json.dumps({"writableRoot": True}),
        "PADDOCK_ENGINE_TIMEOUT_SECONDS": "3",
        "PADDOCK_RESYNC_SECONDS": "5",
    }
    daemon = start_daemon(folder, **settings)
    try:
        daemon.apply(PROFILE)
        daemon.apply(SANDBOX)
        ready(daemon)
        inside(daemon, FILL)
        yield daemon
        daemon.paddock("delete", "sandboxes,sandboxsnapshots", "--all", "--timeout=60s")
        wait_for("no file of a snapshot", lambda: not list((folder / "snapshots").rglob("*.tar")))
        assert not list((folder / "files").rglob("*.tar"))
        assert not engine.docker("images", "-q", "paddock/snapshot"), "names of images that nothing needs"
        assert not engine.docker("ps", "-aq")
    finally:
        daemon.kill()
        unmount_below(Path("/run/paddock/mounts") / daemon.instance_id())


def ready(daemon: RunningDaemon) -> None:
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/k")


def inside(daemon: RunningDaemon, script: str, *arguments: str) -> str:
    return daemon.paddock("exec", "k", "--", "sh", "-c", script, *arguments).stdout


def killed_and_started(engine: PrivateEngine) -> None:
    engine.end(signal.SIGKILL)
    engine.start()


def workers(daemon: RunningDaemon) -> list[int]:
    children = Path(f"/proc/{daemon.process.pid}/task").glob("*/children")
    return [int(worker) for thread in children for worker in thread.read_text().split()]


def signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        os.kill(process, number)


def test_killed_in_a_capture(tmp_path: Path, engine: PrivateEngine) -> None:
    with daemon_of(tmp_path, engine) as daemon:
        assert daemon.process.pid is not None
        container = daemon.get("k")["status"]["instanceRef"]["name"]
        frozen = freezer(int(engine.docker("inspect", "-f", "{{.State.Pid}}", container)))
        daemon.apply(CUT)

        def is_cut() -> bool:
            """Stop all that could end the capture, in the middle of it."""
            if frozen.read_text().strip() not in ("FROZEN", "1"):
                return False
            signal_all([*workers(daemon), int(daemon.process.pid or 0)], signal.SIGSTOP)
            return True

        wait_for("a frozen sandbox", is_cut, 20)
        engine.end(signal.SIGKILL)
        signal_all([int(daemon.process.pid), *workers(daemon)], signal.SIGCONT)
        wait_for("a thawed sandbox", lambda: frozen.read_text().strip() in ("THAWED", "0"), 30)
        engine.start()
        daemon.paddock("wait", "--for=condition=Captured", "--timeout=90s", "sandboxsnapshot/cut")
        ready(daemon)
        assert inside(daemon, COUNT) == "4001\n" + "0\n" * 3
        assert len(list((tmp_path / "snapshots").glob("*/content.json"))) == 1
        assert not list((tmp_path / "snapshots").glob("*/capture.json"))


def exits(daemon: RunningDaemon, engine: PrivateEngine) -> bool:
    return "Exited" in engine.docker("ps", "-a", "--format", "{{.Status}}", "--filter", "label=paddock.name=k")


MOMENTS: dict[str, Callable[[RunningDaemon, PrivateEngine], bool]] = {
    "at once": lambda _daemon, _engine: True,
    "when its container has ended": exits,
    "when files are written": lambda daemon, _engine: any((daemon.folder / "files").rglob("*")),
    "when a worker copies": lambda daemon, _engine: bool(workers(daemon)),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_a_suspension_and_in_a_start(tmp_path: Path, engine: PrivateEngine, moment: str) -> None:
    """Each life adds a line to files of each kind: a line that is missing or there twice would show."""
    with daemon_of(tmp_path, engine) as daemon:
        for change, condition in (("Suspended", "Suspended"), ("Running", "Ready")):
            daemon.paddock("set", "run-state", "sandbox/k", change)
            wait_for(moment, lambda change=change: MOMENTS[moment](daemon, engine) or is_settled(daemon, change))
            killed_and_started(engine)
            daemon.paddock("wait", f"--for=condition={condition}", "--timeout=120s", "sandbox/k")
            if change == "Suspended":
                wait_for("saved files", lambda: daemon.condition("k", "FilesKept").get("reason") == "Saved")
                continue
            inside(daemon, LIVE, "1")
            assert inside(daemon, COUNT) == "4001\n" + "0\n1\n" * 3
            assert not list((tmp_path / "files").rglob("*.tar"))


def is_settled(daemon: RunningDaemon, change: str) -> bool:
    """Tell whether the change is over: the moment went by unseen."""
    if change == "Suspended":
        return daemon.condition("k", "FilesKept").get("reason") == "Saved"
    return daemon.condition("k", "Ready").get("status") == "True"
