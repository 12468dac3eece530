"""Volumes: file systems of their own size, which outlive their boxes and hold no more than they were made for."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.host_folders import Refused
from controller.engine.idmap import IdMaps, Ids
from controller.engine.volumes import Volumes
from controller.kinds.mount import Mount

pytestmark = pytest.mark.docker  # it takes root, as the engine does
SIZE, ROOT = 8 << 20, Ids(0, 0)
VOLUME = Mount("/data", "volume", "data", size_bytes=SIZE)


@pytest.fixture
def maps() -> Iterator[IdMaps]:
    made = IdMaps()
    yield made
    made.close()


def inside(mount: int) -> Path:
    return Path(f"/proc/self/fd/{mount}")


def test_what_is_written_is_there_for_whoever_has_it_next_as_his_own(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, 1 << 30)
    first = volumes.tree(VOLUME, "team", ROOT, maps)  # the tests are root's: so is this box
    (inside(first) / "kept").write_text("kept")
    second = volumes.tree(VOLUME, "team", ROOT, maps)  # while the first is there
    assert (inside(second) / "kept").read_text() == "kept"
    for each in (first, second):
        os.close(each)
    third = volumes.tree(replace(VOLUME, read_only=True), "team", Ids(30000, 30001), maps)
    found = (inside(third) / "kept").stat()
    assert (found.st_uid, found.st_gid) == (30000, 30001)
    with pytest.raises(OSError, match="Read-only"):
        (inside(third) / "more").touch()
    os.close(third)


def test_it_holds_no_more_than_its_size_and_takes_it_at_once(tmp_path: Path, maps: IdMaps) -> None:
    mount = Volumes(tmp_path, 1 << 30).tree(VOLUME, "team", ROOT, maps)
    image = tmp_path / "team" / "data.img"
    assert (image.stat().st_size, image.stat().st_mode & 0o777) == (SIZE, 0o600)
    assert image.stat().st_blocks * 512 >= SIZE
    try:
        with pytest.raises(OSError, match="No space"):
            (inside(mount) / "large").write_bytes(bytes(2 * SIZE))
    finally:
        os.close(mount)


def test_a_namespace_has_no_more_than_it_may_and_no_other_namespaces_volume(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, SIZE + 1)
    os.close(volumes.tree(VOLUME, "team", Ids(20000, 20000), maps))
    with pytest.raises(Refused, match="volumes_per_namespace_bytes"):
        volumes.tree(replace(VOLUME, source="more"), "team", Ids(20000, 20000), maps)
    os.close(volumes.tree(VOLUME, "other", Ids(20000, 20000), maps))
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*.img")) == [
        "other/data.img",
        "team/data.img",
    ]


def test_its_size_does_not_change_and_a_disk_that_is_full_is_told(tmp_path: Path, maps: IdMaps) -> None:
    volumes = Volumes(tmp_path, 1 << 60)
    os.close(volumes.tree(VOLUME, "team", Ids(20000, 20000), maps))
    with pytest.raises(Refused, match="its size does not change"):
        volumes.tree(replace(VOLUME, size_bytes=2 * SIZE), "team", Ids(20000, 20000), maps)
    with pytest.raises(Refused, match="no room"):
        volumes.tree(replace(VOLUME, source="huge", size_bytes=1 << 44), "team", Ids(20000, 20000), maps)
    assert not list(tmp_path.rglob("*.new"))
    assert not list(tmp_path.rglob("huge*"))
