"""The sentinel: freezes what is held once its time is over, on the real engine, whatever became of the daemon."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import run

import pytest

from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.sentinel import FILE, Sentinel, Watch, freezer
from tests.daemon import wait_for

pytestmark = pytest.mark.docker
ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


def docker(*words: str) -> str:
    return run(["docker", *words], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture
def container() -> Iterator[str]:
    output = docker("run", "-d", "--network", "none", "paddock/test-tiny:1", "sleep", "1000000")
    yield output
    docker("rm", "-f", output)


Make = Callable[[], Sentinel]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def sentinel(folder: Path) -> Iterator[Make]:
    """Sentinels as daemons make them, one after the other."""
    sentinels: list[Sentinel] = []

    def make() -> Sentinel:
        sentinels.append(Sentinel(folder, ENGINE))
        return sentinels[-1]

    yield make
    (folder / FILE).unlink(missing_ok=True)  # that ends it
    for entry in sentinels:
        if entry._process is not None:
            entry._process.wait(10)


def state(container: str) -> str:
    return docker("inspect", "-f", "{{.State.Status}}", container)


def pid(container: str) -> int:
    return int(docker("inspect", "-f", "{{.State.Pid}}", container))


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_it_freezes_after_the_deadline_though_the_daemon_is_gone(folder: Path, container: str, sentinel: Make) -> None:
    ours = sentinel()
    ours.hold(now() + 1000, [(container, pid(container))])
    wait_for("it watches", lambda: (folder / "sentinel.lock").exists())
    assert state(container) == "running"
    ours.hold(now(), [(container, pid(container))])
    wait_for("it is frozen", lambda: state(container) == "paused")


def test_it_ends_once_all_is_frozen(folder: Path, container: str, sentinel: Make) -> None:
    ours = sentinel()
    ours.hold(now(), [(container, pid(container))])
    lock = folder / "sentinel.lock"
    process = int(wait_for("it watches", lambda: lock.exists() and lock.read_text()))
    wait_for("it ends", lambda: not Path(f"/proc/{process}/exe").exists())
    assert state(container) == "paused", "a daemon that stopped for good leaves no process, and no second copy"
    ours.hold(now() + 1000, [(container, pid(container))])
    wait_for("another one watches", lambda: lock.read_text() not in ("", str(process)))


def test_the_next_daemon_takes_over_and_replaces_it(folder: Path, container: str, sentinel: Make) -> None:
    sentinel().hold(now() + 1000, [(container, pid(container))])
    lock = folder / "sentinel.lock"
    first = wait_for("it watches", lambda: lock.exists() and lock.read_text())
    after = sentinel()
    after.resume()
    wait_for("another one watches", lambda: lock.read_text() not in ("", first))
    after.hold(now(), [(container, pid(container))])
    wait_for("it is frozen", lambda: state(container) == "paused")


def test_one_that_is_killed_is_started_again_by_the_daemon(folder: Path, container: str, sentinel: Make) -> None:
    ours = sentinel()
    ours.hold(now() + 1000, [(container, pid(container))])
    lock = folder / "sentinel.lock"
    first = wait_for("it watches", lambda: lock.exists() and lock.read_text())
    os.kill(int(first), signal.SIGKILL)

    def again() -> bool:
        ours.hold(now() + 1000, [(container, pid(container))])
        return lock.read_text() not in ("", first)

    wait_for("another one watches", again)


def test_it_ends_when_nothing_is_held(folder: Path, container: str, sentinel: Make) -> None:
    ours = sentinel()
    ours.hold(now() + 1000, [])
    assert not (folder / FILE).exists(), "where nothing is ever held, there is neither file nor process"
    ours.hold(now() + 1000, [(container, pid(container))])
    lock = folder / "sentinel.lock"
    process = int(wait_for("it watches", lambda: lock.exists() and lock.read_text()))
    ours.hold(now() + 1000, [])
    wait_for("it ends", lambda: not Path(f"/proc/{process}/exe").exists())


def test_without_an_engine_it_freezes_the_cgroup_and_thaws_that_again(folder: Path, container: str) -> None:
    files = freezer(Cgroups(), container, pid(container))
    assert files[0], "there is a freezer"
    process = f"/proc/{pid(container)}/wchan"

    def hold(deadline: float) -> None:
        text = {"deadline": deadline, "engine": f"unix://{folder}/no.sock", "containers": {container: files}}
        (folder / FILE).write_text(json.dumps(text))

    watch = Watch(folder)
    hold(100.0)
    assert watch.look(100.0)
    wait_for("it is frozen", lambda: Path(files[0]).read_text().strip() == files[1])
    assert Path(process).exists()
    hold(200.0)
    assert watch.look(150.0)
    wait_for("it is thawed", lambda: Path(files[0]).read_text().strip() == files[2])


def test_without_an_engine_what_was_paused_stays_so(folder: Path, container: str) -> None:
    files = freezer(Cgroups(), container, pid(container))
    docker("pause", container)
    watch = Watch(folder)
    for deadline, now in ((100.0, 100.0), (200.0, 150.0)):
        text = {"deadline": deadline, "engine": f"unix://{folder}/no.sock", "containers": {container: files}}
        (folder / FILE).write_text(json.dumps(text))
        watch.look(now)
    assert Path(files[0]).read_text().strip() == files[1]


def test_what_a_capture_thaws_is_frozen_again(folder: Path) -> None:
    file = folder / "freezer.state"
    file.write_text("FROZEN")
    containers = {"c": (str(file), "FROZEN", "THAWED")}
    order = {"deadline": 100.0, "engine": f"unix://{folder}/no.sock", "containers": containers}
    (folder / FILE).write_text(json.dumps(order))
    watch = Watch(folder)
    assert watch.look(100.0)
    file.write_text("THAWED")
    watch.look(101.0)
    assert file.read_text() == "FROZEN"


def test_a_file_that_is_gone_or_broken_ends_it(folder: Path) -> None:
    watch = Watch(folder)
    assert not watch.look(1.0)
    (folder / FILE).write_text("{")
    assert not watch.look(1.0)
