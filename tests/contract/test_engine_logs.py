"""Logs on the real engine: exact lines, and a followed log that repeats nothing and loses nothing in silence."""

import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.log_lines import last_lines
from controller.kinds.planning.action import SignalContainer
from tests.contract.engine_hosts import EngineHost, docker_host, ok
from tests.daemon import wait_for

pytestmark = pytest.mark.docker
_LONG = 40_000  # bytes: three entries of the engine's
_WRITE_LONG = f"head -c {_LONG} /dev/zero | tr '\\0' x"
_COUNT = "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo $i {padding}; [ $((i % 200)) = 0 ] && sleep 0.03; done"
_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z "


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


def ended(host: EngineHost, script: str, **config: Any) -> str:
    """The id of a container that wrote a log and ended."""
    uid = host.new_uid()
    sandbox = host.running(uid, command=("sh", "-c", script), **config)
    host.until(lambda: host.state(uid) == "exited")
    return sandbox.id


def text(chunks: Iterator[Chunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


_LOSS = b"[paddock: output from 20"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_the_last_lines_are_whole(host: EngineHost, count: int) -> None:
    lines = [b"first\n", b"x" * _LONG + b"\n", b"after\n", b"end"]
    id_ = ended(host, f"echo first; {_WRITE_LONG}; echo; echo after; printf end")
    assert text(host.streams.logs(id_)) == b"".join(lines)
    expected = b"".join(lines[max(0, len(lines) - count) :])
    assert text(host.streams.logs(id_, tail=count)) == expected
    assert text(host.streams.logs(id_, tail=count, follow=True)) == expected
    assert text(host.streams.logs(id_, tail=count, until=time.time())) == expected
    assert text(last_lines(host.streams.logs(id_), count)) == expected


def test_many_last_lines_are_exact(host: EngineHost) -> None:
    id_ = ended(host, _COUNT.format(lines=9_000, padding="a") + f"; {_WRITE_LONG}")
    for options in ({}, {"follow": True}, {"until": time.time()}):
        lines = text(host.streams.logs(id_, tail=6_001, **options)).split(b"\n")
        assert [int(line.split()[0]) for line in lines[:-1]] == list(range(3_001, 9_001))
        assert lines[-1] == b"x" * _LONG


def test_each_line_has_one_timestamp(host: EngineHost) -> None:
    id_ = ended(host, f"{_WRITE_LONG}; echo; echo after; {_WRITE_LONG}")
    for options in ({}, {"tail": 3}, {"follow": True}):
        lines = text(host.streams.logs(id_, timestamps=True, **options)).split(b"\n")
        assert [len(re.findall(_TIME, line)) for line in lines] == [1, 1, 1], options
        assert [len(line) - 31 for line in lines] == [_LONG, 5, _LONG]
    last = text(host.streams.logs(id_, timestamps=True, tail=1))
    assert len(re.findall(_TIME, last)) == 1


def test_a_followed_log_repeats_nothing_after_a_rotation(host: EngineHost) -> None:
    # It counts once its first line was read: lines may be rotated away before a late reader comes.
    script = "trap go=1 USR1; echo 0; until [ $go ]; do sleep 0.05; done; " + _COUNT.format(
        lines=8_000, padding="a" * 50
    )
    uid = host.new_uid()
    sandbox = host.running(uid, command=("sh", "-c", script), log_max_bytes=100_000)
    stream = host.streams.logs(sandbox.id, follow=True)
    first = next(stream).data
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "USR1", "a test")))
    numbers = numbers_of((first + text(stream)).splitlines())
    assert (numbers[0], numbers[-1]) == (0, 8_000)
    assert without_silent_gaps(numbers)


def numbers_of(lines: Sequence[bytes], column: int = 0) -> list[int | None]:
    """Return the number of each line, None for one that tells of a loss: a busy machine may bring one about."""
    return [None if line.startswith(_LOSS) else int(line.split()[column]) for line in lines]


def without_silent_gaps(numbers: Sequence[int | None]) -> bool:
    """Return True if each number follows the one before, or a line that tells of a loss."""
    return all(before is None or after is None or after == before + 1 for before, after in pairwise(numbers))


def test_a_slow_reader_is_told_what_is_lost(host: EngineHost) -> None:
    script = _COUNT.format(lines=16_000, padding="a" * 200)
    uid = host.new_uid()
    sandbox = host.running(uid, command=("sh", "-c", script), log_max_bytes=100_000)
    stream = host.streams.logs(sandbox.id, follow=True, timestamps=True)
    streams = [next(stream).data]
    host.until(lambda: host.state(uid) == "exited")
    lines = b"".join([*streams, *(chunk.data for chunk in stream)]).splitlines()
    numbers = numbers_of(lines, column=1)
    assert None in numbers
    assert numbers[-1] == 16_000
    assert without_silent_gaps(numbers)


def test_a_followed_log_goes_on_after_its_last_lines(host: EngineHost) -> None:
    # It goes on by a signal: the end of a command in it could be lost with its own.
    waiting = "until [ $go ]; do sleep 0.02; done"
    script = f"trap go=1 USR1; echo one; {_WRITE_LONG}; echo; echo three; {waiting}; echo four"
    uid = host.new_uid()
    sandbox = host.running(uid, command=("sh", "-c", script))
    wait_for("its lines", lambda: b"three" in text(host.streams.logs(sandbox.id)))  # no event wakes the host for them
    stream = host.streams.logs(sandbox.id, follow=True, tail=2)
    observed = b""
    while not observed.endswith(b"three\n"):
        observed += next(stream).data
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "USR1", "a test")))
    assert observed + text(stream) == b"x" * _LONG + b"\nthree\nfour\n"


def test_a_followed_log_ends_with_a_removed_container(host: EngineHost) -> None:
    sandbox = host.running(host.new_uid(), command=("sh", "-c", "echo one; sleep 1000"))
    stream = host.streams.logs(sandbox.id, follow=True)
    assert next(stream).data == b"one\n"
    host.hand.remove(sandbox.name)
    assert text(stream) == b""
