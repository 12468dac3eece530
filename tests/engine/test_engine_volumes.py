"""Volumes: file systems of a fixed size that outlive their sandboxes."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.kernel import mount_calls
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.mounts import volume_growth
from controller.engine.mounts.host_folders import Refused
from controller.engine.mounts.volumes import Volumes
from controller.kinds.runtime.mount import Mount
from controller.ports import VolumeInUse
from tests.daemon import wait_for

pytestmark = pytest.mark.docker  # it takes root, as the engine does
SIZE, ROOT = 8 << 20, Ids(0, 0)
VOLUME = Mount("/data", "volume", "data", size_bytes=SIZE)


@pytest.fixture
def maps() -> Iterator[IdMaps]:
    id_maps = IdMaps()
    yield id_maps
    id_maps.close()


def inside(mount: int) -> Path:
    return Path(f"/proc/self/fd/{mount}")


def free(image: Path) -> None:
    """Wait until the last mount of a volume is gone: the kernel lets go of its device in its own time."""
    wait_for(f"{image} is used by nobody", lambda: not attached(image))


def resized(volumes: Volumes, mount: Mount) -> str:
    """Return the reason of the refusal; "" if there is none."""
    try:
        volumes.resize(mount, "team")
    except Refused as refused:
        return str(refused)
    return ""


def attached(image: Path) -> list[Path]:
    observed = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # others' come and go
            if path.read_text().strip() == str(image):
                observed.append(path)
    return observed


def test_data_persists_for_the_next_user(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, 1 << 30)
    first = volumes.tree(VOLUME, "team", ROOT, maps)  # the tests are root's: so is this sandbox
    assert list(inside(first).iterdir()) == [], "no lost+found"
    (inside(first) / "kept").write_text("kept")
    second = volumes.tree(VOLUME, "team", ROOT, maps)  # while the first is there
    assert (inside(second) / "kept").read_text() == "kept"
    for number in (first, second):
        os.close(number)
    third = volumes.tree(replace(VOLUME, read_only=True), "team", Ids(30000, 30001), maps)
    status = (inside(third) / "kept").stat()
    assert (status.st_uid, status.st_gid) == (30000, 30001)
    with pytest.raises(OSError, match="Read-only"):
        (inside(third) / "more").touch()
    os.close(third)


def test_what_a_host_lacks_for_volumes_is_said(tmp_path: Path, maps: IdMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.engine.mounts.volumes._LOOP_CONTROL", str(tmp_path / "none"))
    with pytest.raises(Refused, match="has no loop devices"):
        Volumes(tmp_path, 1 << 30).tree(VOLUME, "team", ROOT, maps)


def test_a_volume_is_bounded_and_fully_allocated(tmp_path: Path, maps: IdMaps) -> None:
    mount = Volumes(tmp_path, 1 << 30).tree(VOLUME, "team", ROOT, maps)
    image = tmp_path / "team" / "data.img"
    assert (image.stat().st_size, image.stat().st_mode & 0o777) == (SIZE, 0o600)
    assert image.stat().st_blocks * 512 >= SIZE
    try:
        with pytest.raises(OSError, match="No space"):
            (inside(mount) / "large").write_bytes(bytes(2 * SIZE))
    finally:
        os.close(mount)


def test_namespace_limit_and_isolation_of_volumes(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, SIZE + 1)
    os.close(volumes.tree(VOLUME, "team", Ids(20000, 20000), maps))
    with pytest.raises(Refused, match="volumes_per_namespace_bytes"):
        volumes.tree(replace(VOLUME, source="more"), "team", Ids(20000, 20000), maps)
    os.close(volumes.tree(VOLUME, "other", Ids(20000, 20000), maps))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.img")) == [
        "other/data.img",
        "team/data.img",
    ]


def test_a_volume_grows_in_place(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, 4 * SIZE)
    first = volumes.tree(VOLUME, "team", ROOT, maps)
    (inside(first) / "kept").write_bytes(b"k" * (SIZE // 4))
    before = os.fstatvfs(first).f_blocks
    os.close(first)
    larger = replace(VOLUME, size_bytes=3 * SIZE)
    free(tmp_path / "team" / "data.img")
    second = volumes.tree(larger, "team", ROOT, maps)
    try:
        assert (inside(second) / "kept").read_bytes() == b"k" * (SIZE // 4)
        assert os.fstatvfs(second).f_blocks > 2 * before
        assert (tmp_path / "team" / "data.img").stat().st_blocks * 512 >= 3 * SIZE
        (inside(second) / "more").write_bytes(bytes(2 * SIZE))
    finally:
        os.close(second)
    with pytest.raises(Refused, match="volumes_per_namespace_bytes"):
        volumes.resize(replace(VOLUME, size_bytes=5 * SIZE), "team")


def test_holes_are_filled_without_data_loss(tmp_path: Path) -> None:
    """As some e2fsprogs leave them."""
    image = tmp_path / "data.img"
    with image.open("wb") as file:
        file.write(b"kept")
        file.truncate(SIZE)
    assert image.stat().st_blocks * 512 < SIZE
    volume_growth.fill_holes(image)
    assert image.stat().st_blocks * 512 >= SIZE
    assert image.read_bytes() == b"kept" + bytes(SIZE - 4)


def may_exceed_limits() -> bool:
    """CAP_SYS_RESOURCE: without it the kernel makes no file system larger that is in use."""
    (reserved,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)
    return bool(int(reserved, 16) >> 24 & 1)


def test_a_mounted_volume_grows_or_says_what_to_do(tmp_path: Path, maps: IdMaps) -> None:
    volumes, larger = Volumes(tmp_path, 1 << 30), replace(VOLUME, size_bytes=4 * SIZE)
    tree = volumes.tree(VOLUME, "team", ROOT, maps)
    before = os.fstatvfs(tree).f_blocks
    output = resized(volumes, larger)
    if not may_exceed_limits():
        assert "suspend the sandboxes that use it" in output
        assert os.fstatvfs(tree).f_blocks == before
    else:
        assert output == ""
        assert os.fstatvfs(tree).f_blocks > 3 * before
    (inside(tree) / "still").write_text("well")
    os.close(tree)
    free(tmp_path / "team" / "data.img")
    now = volumes.tree(larger, "team", ROOT, maps)
    assert os.fstatvfs(now).f_blocks > 3 * before
    assert (inside(now) / "still").read_text() == "well"
    os.close(now)
    assert not list(tmp_path.rglob("*.growing"))


def test_interrupted_growth_is_finished_later(tmp_path: Path, maps: IdMaps) -> None:
    volumes, larger = Volumes(tmp_path, 1 << 30), replace(VOLUME, size_bytes=4 * SIZE)
    first = volumes.tree(VOLUME, "team", ROOT, maps)
    before = os.fstatvfs(first).f_blocks
    os.close(first)
    image = tmp_path / "team" / "data.img"
    free(image)
    volume_growth.extend(image, 4 * SIZE)
    now = volumes.tree(larger, "team", ROOT, maps)
    assert os.fstatvfs(now).f_blocks > 3 * before
    os.close(now)


def test_shrinking_and_full_disks_are_refused(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, 1 << 60)
    os.close(volumes.tree(VOLUME, "team", Ids(20000, 20000), maps))
    with pytest.raises(Refused, match="volumes never shrink"):
        volumes.tree(replace(VOLUME, size_bytes=SIZE // 2), "team", Ids(20000, 20000), maps)
    with pytest.raises(Refused, match="no space"):
        volumes.tree(replace(VOLUME, source="huge", size_bytes=1 << 44), "team", Ids(20000, 20000), maps)
    with pytest.raises(Refused, match="no space"):
        volumes.tree(replace(VOLUME, size_bytes=1 << 44), "team", Ids(20000, 20000), maps)
    assert (tmp_path / "team" / "data.img").stat().st_size == SIZE
    os.close(volumes.tree(VOLUME, "team", Ids(20000, 20000), maps))
    assert not list(tmp_path.rglob("*.new"))
    assert not list(tmp_path.rglob("huge*"))
    assert not list(tmp_path.rglob("*.growing"))


def test_a_deleted_volume_stays_usable_while_mounted(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, 1 << 30)
    tree = volumes.tree(VOLUME, "team", ROOT, maps)
    (inside(tree) / "old").touch()
    for _ in range(2):
        volumes.remove("team", "data")
    assert not list(tmp_path.rglob("*"))
    assert (inside(tree) / "old").exists()
    fresh = volumes.tree(VOLUME, "team", ROOT, maps)
    assert not (inside(fresh) / "old").exists()
    os.close(tree)
    os.close(fresh)


def test_listed_volumes_have_size_age_and_use(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, 1 << 30)
    assert volumes.list_volumes() == []
    before = time.time()
    own_number = volumes.tree(replace(VOLUME, source="a", claimed_by="box"), "team", ROOT, maps)
    os.close(volumes.tree(replace(VOLUME, source="a-b"), "team", ROOT, maps))
    os.close(volumes.tree(VOLUME, "other", ROOT, maps))
    place = tmp_path / "place"
    place.mkdir()
    target = os.open(place, os.O_PATH)
    mount_calls.attach(own_number, target)
    try:
        first = volumes.used_bytes()["team", "a"]
        (place / "more").write_bytes(bytes(1 << 20))
        os.sync()
        assert 1 << 20 <= volumes.used_bytes()["team", "a"] - first < 2 << 20
        host_volumes = volumes.list_volumes()
        assert [(host_volume.namespace, host_volume.name) for host_volume in host_volumes] == [
            ("other", "data"),
            ("team", "a"),
            ("team", "a-b"),
        ]
        assert [host_volume.claimed_by for host_volume in host_volumes] == ["", "box", ""]
        assert all(
            host_volume.size_bytes == SIZE and abs(host_volume.made_at - before) < 120 for host_volume in host_volumes
        )
        assert len({host_volume.uid for host_volume in host_volumes}) == 3
        with pytest.raises(VolumeInUse):
            volumes.remove_unused("team", "a")
    finally:
        mount_calls.detach(str(place))
        os.close(target)
        os.close(own_number)
    free(tmp_path / "team" / "a.img")
    volumes.remove_unused("team", "a")
    assert [volume.name for volume in volumes.list_volumes("team")] == ["a-b"]
    assert [path.name for path in (tmp_path / "team").iterdir()] == ["a-b.img"]


def test_a_claimed_volume_is_exclusive(tmp_path: Path, maps: IdMaps) -> None:
    volumes, own_mount = Volumes(tmp_path, 1 << 30), replace(VOLUME, claimed_by="one")
    os.close(volumes.tree(own_mount, "team", ROOT, maps))
    with pytest.raises(Refused, match="belongs to sandbox `one`"):
        volumes.tree(replace(VOLUME, claimed_by="two"), "team", ROOT, maps)
    os.close(volumes.tree(VOLUME, "team", ROOT, maps))
    volumes.remove("team", "data", "two")
    assert volumes.list_volumes("team")
    volumes.remove("team", "data", "one")
    os.close(volumes.tree(VOLUME, "team", ROOT, maps))
    with pytest.raises(Refused, match="is a shared volume"):
        volumes.tree(own_mount, "team", ROOT, maps)
