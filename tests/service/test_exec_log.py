"""The log of a detached command: head and tail as a gathered result has them, in files that another daemon reads."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.service.exec.collected_output import Capped
from controller.service.exec.exec_log import ExecLog


@given(st.lists(st.binary(max_size=700), max_size=12), st.integers(min_value=2, max_value=600))
def test_the_log_keeps_what_a_collected_result_keeps(pieces: list[bytes], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        capped, log = Capped(limit), ExecLog(Path(folder), limit)
        for piece in pieces:
            capped.add(piece)
            log.add(piece)
            total = sum(path.stat().st_size for path in Path(folder).iterdir())
            assert total <= limit - limit // 2 + 2 * (limit // 2)
        again = ExecLog(Path(folder), limit)
        for exec_log in (log, again):
            assert (exec_log.content(), exec_log.omitted_bytes) == (capped.content(), capped.omitted_bytes)
        log.close()


def test_a_full_disk_ends_the_log_with_a_reason(tmp_path: Path) -> None:
    log = ExecLog(tmp_path / "gone", 100)
    log.add(b"x")
    log.add(b"y")
    assert "could not be kept: no such file or directory" in log.trouble
    assert (log.content(), log.omitted_bytes) == (b"", 0)


@pytest.mark.parametrize("name", ["log.x", "record.json"])
def test_other_files_are_passed_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"other")
    log = ExecLog(tmp_path, 100)
    log.add(b"x")
    log.close()
    assert log.content() == b"x"
