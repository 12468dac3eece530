"""The state folder: created for its owner alone, and refused where other users may write."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.app.core import make_core
from controller.app.errors import CannotStart
from controller.settings import Settings


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(CannotStart, match="become root by it; `chmod 700"), ExitStack() as undo:
        make_core(Settings(state_dir=folder), undo)


def test_a_folder_that_others_may_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as undo:
        make_core(Settings(state_dir=tmp_path / "new"), undo)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert "readable for others" not in capsys.readouterr().out
    (tmp_path / "new").chmod(0o750)
    with ExitStack() as undo:
        make_core(Settings(state_dir=tmp_path / "new"), undo)
    assert "readable for others" in capsys.readouterr().out
