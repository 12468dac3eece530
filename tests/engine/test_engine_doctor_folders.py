"""What `paddock doctor` sees of the folders of the settings: real ones, on the file systems of this machine."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.observe.doctor_folders import look_at_folder, look_at_volumes

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def mounts(of: Path) -> list[str]:
    """Those of that file system; others come and go with other tests."""
    number = of.stat().st_dev
    listed = Path("/proc/self/mountinfo").read_text().splitlines()
    return [each for each in listed if each.split()[2] == f"{os.major(number)}:{os.minor(number)}"]


def test_a_folder_that_is_there_or_not_or_none(tmp_path: Path) -> None:
    assert look_at_folder(str(tmp_path / "none")).mode is None
    assert not look_at_folder(str(tmp_path / "none")).trouble
    (tmp_path / "file").touch()
    assert look_at_folder(str(tmp_path / "file")).trouble == "it is no folder"
    tmp_path.chmod(0o750)
    found = look_at_folder(str(tmp_path))
    assert (found.mode, found.roots, found.maps_ids) == (0o750, os.geteuid() == 0, None)
    assert found.owner
    assert found.file_system


def test_a_folder_of_the_hosts_own_is_known_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to("/etc")
    assert look_at_folder(str(tmp_path / "mine")).hosts_own.startswith("is /etc under another name")
    assert look_at_folder(str(tmp_path)).hosts_own == ""


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "place"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@root
def test_whether_ids_can_be_mapped_is_tried_and_leaves_nothing(tmpfs: Path) -> None:
    before = mounts(tmpfs)
    assert look_at_folder(str(tmpfs), maps=True).file_system == "tmpfs"
    assert look_at_folder("/proc/tty", maps=True).maps_ids is False  # procfs maps no ids
    assert isinstance(look_at_folder(str(tmpfs), maps=True).maps_ids, bool)
    assert mounts(tmpfs) == before != []


def test_volumes_are_counted(tmp_path: Path) -> None:
    for name, size in (("a/one.img", 1000), ("b/two.img", 24), ("b/half.new", 7)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    found = look_at_volumes(tmp_path, 1 << 20)
    assert (found.count, found.held_bytes, found.most_bytes) == (2, 1024, 1 << 20)
    assert look_at_volumes(tmp_path / "none", 0).count == 0
