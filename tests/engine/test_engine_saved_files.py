"""Folders in memory on the real kernel: held over a stop, saved, put back, and never lost to a crash between steps."""

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.docker.client import Client
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.mounts.saved_files import SavedFolders
from controller.kinds.planning.outcome import FILES_NOT_SAVED, FILES_TOO_LARGE, Ok, Outcome, Transient
from controller.kinds.runtime.mount import BindMounts, CheckFiles, Mount, RemoveFiles, SaveFiles, Slot
from controller.ports import NullMeter
from tests.crashes import killed_at
from tests.mounts import unmount_below

pytestmark = pytest.mark.docker  # it takes root, as the engine does
TMP = Mount("/tmp", "tmpfs", size_bytes=4 << 20, noexec=True, sticky=True)
WORK = Mount("/work", "memory", size_bytes=4 << 20)
CHECK, SAVE = CheckFiles("u", "box", "c", "a test"), SaveFiles("u", "box", "a test")


class Harness:
    """A host with a plain listener in the engine's place."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mounts = folder, HostMounts.__new__(HostMounts)
        self.again()

    def again(self, most_bytes: int = 1 << 30) -> None:
        """The next daemon."""
        client = Client(f"unix://{self.folder}/e.sock", meter=NullMeter(), timeout_seconds=5)
        saved = SavedFolders(self.folder / "state" / "files", most_bytes=most_bytes)
        self.mounts = HostMounts("i", client, folder=self.folder / "m", saved=saved)

    def start(self, *mounts: Mount, keep: bool = True, user: str = "20000:20001") -> Outcome:
        slots = tuple(Slot(mount.path) for mount in mounts)
        return self.mounts.bind(
            BindMounts("u", "box", "default", "img", user, slots, mounts, "a test", keep_files=keep)
        )

    def place(self, number: int) -> Path:
        return self.folder / "m" / "i" / "u" / str(number)

    def on_disk(self) -> list[str]:
        root = self.folder / "state" / "files"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*")) if root.is_dir() else []


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "e.sock"))
        listening.listen(2000)  # nobody accepts
        harness = Harness(tmp_path)
        try:
            yield harness
        finally:
            harness.mounts.close()
            unmount_below(tmp_path)


def write(place: Path) -> None:
    (place / "a").mkdir()
    (place / "a" / "file").write_text("kept")
    (place / "a" / "link").hardlink_to(place / "a" / "file")
    os.chown(place / "a" / "file", 20000, 20001)
    (place / "a" / "file").chmod(0o4751)


def test_folders_are_as_the_engine_would_make_them(harness: Harness) -> None:
    assert harness.start(TMP, WORK) == Ok()
    modes = [(harness.place(n).stat().st_mode & 0o7777, harness.place(n).stat().st_uid) for n in (0, 1)]
    assert modes == [(0o1777, 20000), (0o755, 20000)]
    flags = [bool(os.statvfs(harness.place(n)).f_flag & os.ST_NOEXEC) for n in (0, 1)]
    assert flags == [True, False]
    harness.start(Mount("/data", "tmpfs", size_bytes=1 << 20), user="node")
    assert harness.place(0).stat().st_mode & 0o7777 == 0o1777, "only the image knows its user"


def test_saved_files_come_back_as_they_were(harness: Harness) -> None:
    harness.start(TMP, WORK)
    write(harness.place(1))
    before = (harness.place(1) / "a" / "file").stat()
    assert harness.mounts.check_files(CHECK) == Ok()
    done = harness.mounts.save_files(SAVE)
    assert isinstance(done, Ok)
    assert done.saved is not None
    assert done.saved.file_count >= 3
    assert (harness.mounts.bound("u"), list(harness.place(1).iterdir())) == ((), [])
    assert {path.stat().st_mode & 0o777 for path in (harness.folder / "state" / "files").rglob("*.tar")} == {0o600}
    harness.again()
    assert harness.start(TMP, WORK) == Ok()
    after = (harness.place(1) / "a" / "file").stat()
    for name in ("st_mode", "st_uid", "st_gid", "st_mtime_ns", "st_nlink", "st_size"):
        assert getattr(after, name) == getattr(before, name), name
    assert harness.on_disk() == []


def test_nothing_is_written_for_empty_folders(harness: Harness) -> None:
    harness.start(TMP, WORK)
    done = harness.mounts.save_files(SAVE)
    assert isinstance(done, Ok)
    assert done.saved is not None
    assert (done.saved.size_bytes, done.saved.file_count) == (0, 0)
    assert (harness.on_disk(), harness.mounts.bound("u")) == ([], ())


def test_held_files_survive_stop_daemon_and_recreate(harness: Harness) -> None:
    harness.start(TMP, WORK)
    write(harness.place(1))
    harness.mounts.close()
    harness.again()
    harness.mounts.sweep(["u"], [])
    assert harness.start(Mount("/extra", "tmpfs", size_bytes=1 << 20), TMP, WORK) == Ok(), "its places are others now"
    assert (harness.place(2) / "a" / "file").read_text() == "kept"
    larger = replace(WORK, size_bytes=8 << 20)
    assert harness.start(TMP, larger) == Ok()
    assert (harness.place(1) / "a" / "file").stat().st_nlink == 2
    assert os.statvfs(harness.place(1)).f_blocks * os.statvfs(harness.place(1)).f_frsize == 8 << 20
    assert harness.on_disk() == []


def test_crash_between_save_and_release_loses_nothing(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.start(TMP, WORK)
    write(harness.place(1))
    monkeypatch.setattr(HostMounts, "_empty", lambda *_: (_ for _ in ()).throw(OSError(5, "crash")))
    assert isinstance(harness.mounts.save_files(SAVE), Transient)
    monkeypatch.undo()
    harness.again()
    (harness.place(1) / "a" / "later").write_text("newer than what was saved")
    assert harness.start(TMP, WORK) == Ok()
    assert (harness.place(1) / "a" / "later").exists(), "what is in memory is never replaced by what was saved"
    assert harness.on_disk() == []


def test_crash_before_the_start_restores_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.start(TMP, WORK)
    write(harness.place(1))
    harness.mounts.save_files(SAVE)
    monkeypatch.setattr(SavedFolders, "remove", lambda *_: (_ for _ in ()).throw(OSError(5, "crash")))
    assert isinstance(harness.start(TMP, WORK), Transient)
    monkeypatch.undo()
    (harness.place(1) / "a" / "file").unlink()
    harness.again()
    assert harness.start(TMP, WORK) == Ok()
    assert sorted(path.name for path in (harness.place(1) / "a").iterdir()) == ["link"]
    assert harness.on_disk() == []


@pytest.mark.parametrize("work", ["save", "start"])
def test_killed_at_any_step_loses_nothing(harness: Harness, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    for step in range(60):
        assert harness.start(TMP, WORK) == Ok()
        (harness.place(1) / str(step)).write_text("kept")
        if work == "start":
            assert isinstance(harness.mounts.save_files(SAVE), Ok)
        with killed_at(step, monkeypatch) as killed:
            if work == "save":
                harness.mounts.save_files(SAVE)
            else:
                harness.start(TMP, WORK)
        harness.mounts.close()
        harness.again()
        assert harness.start(TMP, WORK) == Ok(), f"step {step}"
        assert sorted(int(file.name) for file in harness.place(1).iterdir()) == list(range(step + 1)), f"step {step}"
        assert harness.on_disk() == [], f"step {step}"
        if killed:
            break
    assert 5 < step < 60


def test_a_full_disk_keeps_them_in_memory(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.engine.mounts.saved_files._RESERVE_BYTES", 0)
    state = harness.folder / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,nr_inodes=4", "none", str(state)], check=True)
    harness.start(TMP, WORK)
    (harness.place(1) / "file").write_text("kept")
    failed = harness.mounts.save_files(SAVE)
    assert isinstance(failed, Transient)
    assert (failed.reason, "No space left" in failed.message) == (FILES_NOT_SAVED, True)
    assert (harness.place(1) / "file").read_text() == "kept"
    assert harness.on_disk() == []
    subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(state)], check=True)
    assert isinstance(harness.mounts.save_files(SAVE), Ok)


def test_too_large_is_refused_and_stays_in_memory(harness: Harness) -> None:
    harness.again(most_bytes=1 << 20)
    harness.start(TMP, WORK)
    (harness.place(1) / "large").write_bytes(os.urandom(2 << 20))
    files = harness.mounts.check_files(CHECK)
    assert isinstance(files, Transient)
    assert files.reason == FILES_TOO_LARGE
    assert "suspend_files_bytes" in files.message
    failed = harness.mounts.save_files(SAVE)
    assert isinstance(failed, Transient)
    assert failed.reason == FILES_NOT_SAVED
    assert (harness.place(1) / "large").stat().st_size == 2 << 20


def test_discarded_and_deleted_files_are_gone(harness: Harness) -> None:
    harness.start(TMP, WORK)
    write(harness.place(1))
    harness.mounts.save_files(SAVE)
    assert harness.start(TMP, WORK, keep=False) == Ok()
    assert (list(harness.place(1).iterdir()), harness.on_disk()) == ([], [])
    harness.start(TMP, WORK)
    write(harness.place(1))
    harness.mounts.save_files(SAVE)
    assert harness.on_disk() != []
    harness.mounts.remove_files(RemoveFiles("u", "box", "a test"))
    assert harness.on_disk() == []


def test_damaged_archive_refuses_the_start_in_words(harness: Harness) -> None:
    harness.start(TMP, WORK)
    write(harness.place(1))
    harness.mounts.save_files(SAVE)
    for archive in (harness.folder / "state" / "files").rglob("*.tar"):
        archive.write_bytes(archive.read_bytes()[:700])
    started = harness.start(TMP, WORK)
    assert isinstance(started, Transient)
    assert "onSuspend" in started.message


def test_restored_bytes_are_recorded_as_uncharged(harness: Harness) -> None:
    harness.start(TMP, WORK)
    (harness.place(1) / "large").write_bytes(os.urandom(2 << 20))
    harness.mounts.save_files(SAVE)
    harness.start(TMP, WORK)
    assert {bound_mount.path: bound_mount.uncharged_bytes >> 20 for bound_mount in harness.mounts.bound("u")} == {
        "/tmp": 0,
        "/work": 2,
    }
