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


class House:
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
def house(tmp_path: Path) -> Iterator[House]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "e.sock"))
        listening.listen(2000)  # nobody accepts
        house = House(tmp_path)
        try:
            yield house
        finally:
            house.mounts.close()
            unmount_below(tmp_path)


def write(place: Path) -> None:
    (place / "a").mkdir()
    (place / "a" / "file").write_text("kept")
    (place / "a" / "link").hardlink_to(place / "a" / "file")
    os.chown(place / "a" / "file", 20000, 20001)
    (place / "a" / "file").chmod(0o4751)


def test_folders_are_as_the_engine_would_make_them(house: House) -> None:
    assert house.start(TMP, WORK) == Ok()
    modes = [(house.place(n).stat().st_mode & 0o7777, house.place(n).stat().st_uid) for n in (0, 1)]
    assert modes == [(0o1777, 20000), (0o755, 20000)]
    flags = [bool(os.statvfs(house.place(n)).f_flag & os.ST_NOEXEC) for n in (0, 1)]
    assert flags == [True, False]
    house.start(Mount("/data", "tmpfs", size_bytes=1 << 20), user="node")
    assert house.place(0).stat().st_mode & 0o7777 == 0o1777, "only the image knows its user"


def test_saved_files_come_back_as_they_were(house: House) -> None:
    house.start(TMP, WORK)
    write(house.place(1))
    before = (house.place(1) / "a" / "file").stat()
    assert house.mounts.check_files(CHECK) == Ok()
    done = house.mounts.save_files(SAVE)
    assert isinstance(done, Ok)
    assert done.saved is not None
    assert done.saved.file_count >= 3
    assert (house.mounts.bound("u"), list(house.place(1).iterdir())) == ((), [])
    assert {path.stat().st_mode & 0o777 for path in (house.folder / "state" / "files").rglob("*.tar")} == {0o600}
    house.again()
    assert house.start(TMP, WORK) == Ok()
    after = (house.place(1) / "a" / "file").stat()
    for name in ("st_mode", "st_uid", "st_gid", "st_mtime_ns", "st_nlink", "st_size"):
        assert getattr(after, name) == getattr(before, name), name
    assert house.on_disk() == []


def test_nothing_is_written_for_empty_folders(house: House) -> None:
    house.start(TMP, WORK)
    done = house.mounts.save_files(SAVE)
    assert isinstance(done, Ok)
    assert done.saved is not None
    assert (done.saved.size_bytes, done.saved.file_count) == (0, 0)
    assert (house.on_disk(), house.mounts.bound("u")) == ([], ())


def test_held_files_survive_stop_daemon_and_recreate(house: House) -> None:
    house.start(TMP, WORK)
    write(house.place(1))
    house.mounts.close()
    house.again()
    house.mounts.sweep(["u"], [])
    assert house.start(Mount("/extra", "tmpfs", size_bytes=1 << 20), TMP, WORK) == Ok(), "its places are others now"
    assert (house.place(2) / "a" / "file").read_text() == "kept"
    larger = replace(WORK, size_bytes=8 << 20)
    assert house.start(TMP, larger) == Ok()
    assert (house.place(1) / "a" / "file").stat().st_nlink == 2
    assert os.statvfs(house.place(1)).f_blocks * os.statvfs(house.place(1)).f_frsize == 8 << 20
    assert house.on_disk() == []


def test_crash_between_save_and_release_loses_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.start(TMP, WORK)
    write(house.place(1))
    monkeypatch.setattr(HostMounts, "_empty", lambda *_: (_ for _ in ()).throw(OSError(5, "crash")))
    assert isinstance(house.mounts.save_files(SAVE), Transient)
    monkeypatch.undo()
    house.again()
    (house.place(1) / "a" / "later").write_text("newer than what was saved")
    assert house.start(TMP, WORK) == Ok()
    assert (house.place(1) / "a" / "later").exists(), "what is in memory is never replaced by what was saved"
    assert house.on_disk() == []


def test_crash_before_the_start_restores_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.start(TMP, WORK)
    write(house.place(1))
    house.mounts.save_files(SAVE)
    monkeypatch.setattr(SavedFolders, "remove", lambda *_: (_ for _ in ()).throw(OSError(5, "crash")))
    assert isinstance(house.start(TMP, WORK), Transient)
    monkeypatch.undo()
    (house.place(1) / "a" / "file").unlink()
    house.again()
    assert house.start(TMP, WORK) == Ok()
    assert sorted(path.name for path in (house.place(1) / "a").iterdir()) == ["link"]
    assert house.on_disk() == []


@pytest.mark.parametrize("work", ["save", "start"])
def test_killed_at_any_step_loses_nothing(house: House, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    for step in range(60):
        assert house.start(TMP, WORK) == Ok()
        (house.place(1) / str(step)).write_text("kept")
        if work == "start":
            assert isinstance(house.mounts.save_files(SAVE), Ok)
        with killed_at(step, monkeypatch) as killed:
            if work == "save":
                house.mounts.save_files(SAVE)
            else:
                house.start(TMP, WORK)
        house.mounts.close()
        house.again()
        assert house.start(TMP, WORK) == Ok(), f"step {step}"
        assert sorted(int(file.name) for file in house.place(1).iterdir()) == list(range(step + 1)), f"step {step}"
        assert house.on_disk() == [], f"step {step}"
        if killed:
            break
    assert 5 < step < 60


def test_a_full_disk_keeps_them_in_memory(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.engine.mounts.saved_files._RESERVE_BYTES", 0)
    state = house.folder / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,nr_inodes=4", "none", str(state)], check=True)
    house.start(TMP, WORK)
    (house.place(1) / "file").write_text("kept")
    failed = house.mounts.save_files(SAVE)
    assert isinstance(failed, Transient)
    assert (failed.reason, "No space left" in failed.message) == (FILES_NOT_SAVED, True)
    assert (house.place(1) / "file").read_text() == "kept"
    assert house.on_disk() == []
    subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(state)], check=True)
    assert isinstance(house.mounts.save_files(SAVE), Ok)


def test_too_large_is_refused_and_stays_in_memory(house: House) -> None:
    house.again(most_bytes=1 << 20)
    house.start(TMP, WORK)
    (house.place(1) / "large").write_bytes(os.urandom(2 << 20))
    files = house.mounts.check_files(CHECK)
    assert isinstance(files, Transient)
    assert files.reason == FILES_TOO_LARGE
    assert "suspend_files_bytes" in files.message
    failed = house.mounts.save_files(SAVE)
    assert isinstance(failed, Transient)
    assert failed.reason == FILES_NOT_SAVED
    assert (house.place(1) / "large").stat().st_size == 2 << 20


def test_discarded_and_deleted_files_are_gone(house: House) -> None:
    house.start(TMP, WORK)
    write(house.place(1))
    house.mounts.save_files(SAVE)
    assert house.start(TMP, WORK, keep=False) == Ok()
    assert (list(house.place(1).iterdir()), house.on_disk()) == ([], [])
    house.start(TMP, WORK)
    write(house.place(1))
    house.mounts.save_files(SAVE)
    assert house.on_disk() != []
    house.mounts.remove_files(RemoveFiles("u", "box", "a test"))
    assert house.on_disk() == []


def test_damaged_archive_refuses_the_start_in_words(house: House) -> None:
    house.start(TMP, WORK)
    write(house.place(1))
    house.mounts.save_files(SAVE)
    for archive in (house.folder / "state" / "files").rglob("*.tar"):
        archive.write_bytes(archive.read_bytes()[:700])
    started = house.start(TMP, WORK)
    assert isinstance(started, Transient)
    assert "onSuspend" in started.message


def test_restored_bytes_are_recorded_as_uncharged(house: House) -> None:
    house.start(TMP, WORK)
    (house.place(1) / "large").write_bytes(os.urandom(2 << 20))
    house.mounts.save_files(SAVE)
    house.start(TMP, WORK)
    assert {bound_mount.path: bound_mount.uncharged_bytes >> 20 for bound_mount in house.mounts.bound("u")} == {
        "/tmp": 0,
        "/work": 2,
    }
