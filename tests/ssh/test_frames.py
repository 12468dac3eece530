"""Frames of a command's output, and what reaches a command of what a client says."""

import pytest

from controller.ssh import frames
from controller.ssh.command import command_line, passed_environment

_STREAM = [(frames.STDOUT, b"one"), (frames.STDERR, b""), (frames.STDOUT, b"x" * 70_000), (frames.EXIT, b"3")]
_BYTES = b"".join(frames.HEAD.pack(kind, len(data)) + data for kind, data in _STREAM)


@pytest.mark.parametrize("size", [1, 4, 5, 4096, len(_BYTES)])
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    reader = frames.Reader()
    pieces = (_BYTES[at : at + size] for at in range(0, len(_BYTES), size))
    assert [frame for piece in pieces for frame in reader.feed(piece)] == _STREAM


@pytest.mark.parametrize("head", [b"\x09\0\0\0\0", b"\0\xff\0\0\0"])
def test_other_bytes_than_frames_are_refused(head: bytes) -> None:
    with pytest.raises(frames.Malformed):
        list(frames.Reader().feed(head))


def test_only_harmless_variables_reach_a_command() -> None:
    sent = {
        "LANG": "C",
        "LC_ALL": "C",
        "LC_X;Y": "z",
        "LD_PRELOAD": "x",
        "PATH": "/x",
        "TERM": "a\0b",
        "TZ": "y" * 2000,
    }
    assert passed_environment(sent) == {"LANG": "C", "LC_ALL": "C"}


def test_a_command_is_one_string_for_the_shell() -> None:
    assert command_line("/bin/sh", "echo 'a b' | wc") == ["/bin/sh", "-c", "echo 'a b' | wc"]
    assert command_line("/bin/bash", None) == ["/bin/bash", "-l"]
