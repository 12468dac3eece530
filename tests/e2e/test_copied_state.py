"""A copied state folder beside its original on one engine: one of the two acts. No engine is needed."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, start_daemon, wait_for


class Folders:
    """State folders with one instance id, and their daemons, on one engine."""

    def __init__(self, folder: Path, undo: ExitStack) -> None:
        self.folder, self._undo = folder, undo
        first = self.start("first")
        first.stop()

    def start(self, name: str, engine: str = "engine.sock", *, ready: bool = True) -> RunningDaemon:
        if name != "first":
            shutil.copytree(self.folder / "first", self.folder / name, ignore=shutil.ignore_patterns("*.sock"))
        host = f"unix://{self.folder / engine}"
        daemon = start_daemon(self.folder / name, ready=ready, PADDOCK_DOCKER_HOST=host)
        self._undo.callback(daemon.kill)
        return daemon


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    with ExitStack() as undo:
        yield Folders(tmp_path, undo)


@pytest.mark.parametrize("is_frozen", [False, True], ids=["running", "frozen"])
def test_daemon_of_a_copied_folder_refuses_to_act(folders: Folders, is_frozen: bool) -> None:
    first = folders.start("first")
    if is_frozen:
        first.process.send_signal(signal.SIGSTOP)
    try:
        copy = folders.start("copy", ready=False)
        assert copy.process.wait(60) == 1
        wait_for("it says why", lambda: "one is a copy of the other" in "".join(copy.log))
        assert f"pid {first.process.pid}" in "".join(copy.log)
    finally:
        first.process.send_signal(signal.SIGCONT)
    assert first.process.poll() is None


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_copy_acts_once_its_original_is_gone(folders: Folders, is_killed: bool) -> None:
    first = folders.start("first")
    if is_killed:
        first.kill()
    else:
        first.stop()
    assert folders.start("copy").instance_id() == first.instance_id()


def test_copy_acts_on_another_engine(folders: Folders) -> None:
    first = folders.start("first")
    assert folders.start("copy", "other.sock").instance_id() == first.instance_id()


def test_the_same_folder_starts_again_after_a_kill(folders: Folders) -> None:
    first = folders.start("first")
    first.kill()
    first.start_again()
    assert first.stop() == 0
