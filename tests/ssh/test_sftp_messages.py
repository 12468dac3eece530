"""Messages of SFTP that people are shown: found however the stream is cut, and each but once."""

import struct

import pytest

from controller.engine.files import sftp
from controller.ssh import sftp_messages
from controller.ssh.sftp_messages import Messages


def _stream() -> bytes:
    data = struct.pack(">IBI", 9 + 70_000, sftp.DATA, 1) + struct.pack(">I", 70_000) + b"e" * 70_000
    full = sftp.status(2, sftp.FAILURE, "no space left; remove some", sftp.FOR_PEOPLE)
    other = sftp.status(3, sftp.FAILURE, "file exists")
    too_long = sftp.status(4, sftp.FAILURE, "x" * 10_000, sftp.FOR_PEOPLE)
    odd = sftp.status(5, sftp.FAILURE, "a\x1b[2Jname", sftp.FOR_PEOPLE)
    return data + full + other + too_long + full + sftp.status(6, sftp.OK) + odd


@pytest.mark.parametrize("size", [1, 3, 7, 4096, 1 << 20])
def test_a_message_for_people_is_shown_once(size: int) -> None:
    messages, stream = Messages(), _stream()
    shown = [text for at in range(0, len(stream), size) for text in messages.feed(stream[at : at + size])]
    assert shown == ["no space left; remove some", "'a\\x1b[2Jname'"]


def test_the_worker_marks_messages_as_they_are_read() -> None:
    assert sftp.FOR_PEOPLE == sftp_messages.FOR_PEOPLE


@pytest.mark.parametrize("data", [b"\0" * 64, b"\xff" * 64, b"\0\0\0\x06e\0\0\0\1\0", b"\0\0\0\0e"])
def test_other_bytes_show_nothing(data: bytes) -> None:
    assert Messages().feed(data * 3) == []
