"""loop/store_lineage.py: a store that was restored is noticed, and stays so until an operator confirms it."""

from pathlib import Path

import pytest

from controller.loop.store_lineage import StoreLineage


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lineage.json"


def opened(file: Path, store: str = "store-1") -> StoreLineage:
    """A daemon's, at its start; every revision is noted."""
    return StoreLineage(file, store, clock=iter(range(0, 1_000_000, 100)).__next__)


def test_a_store_that_goes_on_is_swept(file: Path) -> None:
    for revisions in ((1, 2, 2, 5), (5, 9)):
        lineage = opened(file)
        assert [lineage.follow(revision) for revision in revisions] == [""] * len(revisions)


@pytest.mark.parametrize("restart", [False, True])
def test_a_store_that_went_back_is_not_swept_until_that_is_confirmed(file: Path, restart: bool) -> None:
    lineage = opened(file)
    lineage.follow(120)
    lineage = opened(file) if restart else lineage
    assert "from revision 120 to 80" in lineage.follow(80)
    assert "restored" in lineage.follow(500), "what it writes from now on is no confirmation"
    lineage = opened(file)
    assert str(file) in lineage.follow(501)
    file.unlink()
    assert lineage.follow(502) == ""
    assert opened(file).follow(503) == ""


def test_a_restore_that_put_the_file_back_too_is_told_by_the_containers(file: Path) -> None:
    lineage = opened(file)
    assert lineage.follow(80, lambda: 70) == ""
    backup = file.read_text()
    lineage.follow(120, lambda: 110)
    file.write_text(backup)
    lineage = opened(file)
    assert lineage.follow(80, lambda: None) == "", "nobody is swept while they can't be seen"
    assert "from revision 110 to 80" in lineage.follow(90, lambda: 110)
    assert "restored" in opened(file).follow(200, lambda: 110)
    file.unlink()
    lineage = opened(file)
    assert "from revision 110 to 90" in lineage.follow(90, lambda: 110), "a file that is not there is no confirmation"
    file.unlink()
    assert lineage.follow(91, lambda: 110) == ""
    assert lineage.follow(92, lambda: 110) == ""
    assert opened(file).follow(93, lambda: 110) == "", "confirmed for good"
    assert "from revision 115 to 94" in opened(file).follow(94, lambda: 115), "but not the next restore"


def test_what_this_life_makes_is_no_witness(file: Path) -> None:
    lineage = opened(file)
    assert lineage.follow(80, lambda: 0) == ""
    assert lineage.follow(120, lambda: 119) == ""


def test_another_store_is_not_an_older_one(file: Path) -> None:
    opened(file).follow(120)
    assert opened(file, "store-2").follow(1) == ""


def test_what_cannot_be_noted_or_read_withholds(file: Path) -> None:
    file.write_text("{")
    assert "can't be read" in opened(file).follow(1)
    nowhere = file.parent / "missing" / "lineage.json"
    lineage = opened(nowhere)
    assert all("can't be written" in lineage.follow(entry) for entry in (1, 1, 2))
    nowhere.parent.mkdir()
    assert lineage.follow(2) == ""


def test_it_is_noted_now_and_then_and_at_the_end(file: Path) -> None:
    lineage = StoreLineage(file, "store-1", clock=lambda: 0.0)
    for revision in (1, 2, 3):
        lineage.follow(revision)
    assert opened(file).follow(1) == "", "as of the last note"
    lineage.follow(4)
    lineage.close()
    assert "from revision 4 to 3" in opened(file).follow(3)
