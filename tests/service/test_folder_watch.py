"""Lines of an agent about a watched folder: nothing of them is trusted."""

import pytest

from controller.kinds.common.chunk import Chunk
from controller.service.sandbox.folder_watch import event_of


def test_lines_are_events_or_signs_of_life() -> None:
    assert event_of(b'{"name": "a/b", "change": "rename"}') == Chunk("rename", b"a/b")
    assert event_of(b"{}").stream == ""


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"[" * 100_000,
        b"[]",
        b'{"lost": true}',
        b'{"name": 1, "change": "create"}',
        b'{"name": "a", "change": "other"}',
        b'{"name": "/etc", "change": "create"}',
        b'{"name": "a/../b", "change": "create"}',
        b'{"name": "a\\u0000", "change": "create"}',
        b'{"name": "' + b"a" * 4097 + b'", "change": "create"}',
        b'{"name": "a", "change": "create", "more": "' + b"a" * (32 << 10) + b'"}',
    ],
)
def test_lines_of_another_form_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        event_of(line)
