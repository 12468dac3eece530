"""engine/exec/logs.py: a followed log over several answers of the engine, each scripted."""

import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from controller.engine.docker.errors import of_status
from controller.engine.exec.byte_queue import ByteQueue
from controller.engine.exec.logs import LogReader, LogRequest, _moment, entries, seconds_of
from controller.ports import StreamError

NOW = time.time()


def frame(text: str, at: float, kind: int = 1) -> bytes:
    """An entry as the engine sends it."""
    data = f"{_moment(at)} {text}".encode()
    return struct.pack(">BxxxL", kind, len(data)) + data


class Answer:
    """An answer of the engine, in pieces."""

    def __init__(self, *frames: bytes, size: int = 1 << 16) -> None:
        text = b"".join(frames)
        self.pieces = [text[at : at + size] for at in range(0, len(text), size)]

    def read(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


def followed(
    *answers: Answer, running: int = 0, before: Callable[[Mapping[str, str]], None] = lambda _: None, **asked: Any
) -> tuple[str, list[Mapping[str, str]]]:
    """The text of a followed log, and the requests for it. After `running` answers the run has ended."""
    requests, script = list[Mapping[str, str]](), list(answers)

    def open_(params: Mapping[str, str]) -> Any:
        requests.append(params)
        before(params)
        return script.pop(0)

    def ended_at() -> float | None:
        return None if len(requests) <= running else float("inf")

    reader = LogReader(LogRequest(follow=True, **asked), open_, ended_at, ByteQueue())
    text = b"".join(chunk.data for chunk in reader.chunks(reader.first())).decode()
    assert script == []
    return text, requests


ONE, TWO = frame("one\n", NOW + 1), frame("two\n", NOW + 2)


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_entries_come_in_pieces_of_any_size(size: int) -> None:
    answer = Answer(ONE, frame("err", NOW, kind=2), TWO, size=size)
    read = [entry for batch in entries(answer.read) for entry in batch]
    assert [(entry.stream, entry.text) for entry in read] == [
        ("stdout", b"one\n"),
        ("stderr", b"err"),
        ("stdout", b"two\n"),
    ]
    assert seconds_of(read[0].time) == pytest.approx(NOW + 1, abs=1e-5)


def test_an_answer_that_the_engine_ends_is_continued() -> None:
    text, requests = followed(Answer(ONE), Answer(ONE, TWO), Answer(ONE, TWO), running=1)
    assert text == "one\ntwo\n"
    assert [request["follow"] for request in requests] == ["1", "1", "0"]
    assert NOW - 1 < float(requests[1]["since"]) < NOW + 1


def test_the_end_shows_what_the_engine_left_out() -> None:
    assert followed(Answer(ONE), Answer(ONE, TWO))[0] == "one\ntwo\n"


def test_a_file_that_is_begun_anew_is_read_from_the_position() -> None:
    now = time.time()
    zero, first, two = frame("zero\n", now - 0.5), frame("one\n", now - 0.3), frame("two\n", now - 0.2)
    text, requests = followed(Answer(zero, first, zero, first), Answer(zero, first, two), Answer(two))
    assert text == "zero\none\ntwo\n"
    assert [request["follow"] for request in requests] == ["1", "1", "0"]


def test_a_gap_before_a_late_entry_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = (frame(f"{number}\n", NOW + number / 10) for number in range(3))
    moments = iter([NOW, NOW])  # as the log is opened, and after its first entry; then a second later
    monkeypatch.setattr(time, "time", lambda: next(moments, NOW + 1))
    text, _ = followed(Answer(one, three, size=len(one)), Answer(one, two, three), Answer(three))
    assert text == "0\n1\n2\n"


def test_what_is_in_no_file_any_more_is_said() -> None:
    text, _ = followed(Answer(ONE), Answer(TWO))
    assert text == f"one\n[paddock: output from {_moment(NOW + 1)} to {_moment(NOW + 2)} is lost: " + (
        "the log was rotated before it was read]\ntwo\n"
    )


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    back = frame("back\n", NOW + 3000)
    text, requests = followed(Answer(frame("ahead\n", NOW + 3600), back, TWO), Answer(TWO))
    assert (text, len(requests)) == ("ahead\nback\ntwo\n", 2)


def test_a_long_line_has_one_time_and_is_not_repeated() -> None:
    parts = [frame("xx", NOW + 1), frame("xx", NOW + 1), frame("x\n", NOW + 1)]
    text, _ = followed(Answer(*parts[:2]), Answer(*parts), Answer(*parts), running=1, timestamps=True)
    assert text == f"{_moment(NOW + 1)} xxxxx\n"


@pytest.mark.parametrize(("status", "answer"), [(404, "no such container"), (409, "marked for removal")])
def test_a_removed_container_ends_its_log(status: int, answer: str) -> None:
    def gone(params: Mapping[str, str]) -> None:
        if params["follow"] == "0":
            raise StreamError("the container is gone") from of_status(status, answer)

    assert followed(Answer(ONE), before=gone)[0] == "one\n"


def test_an_engine_that_does_not_answer_is_no_end() -> None:
    def hanging(params: Mapping[str, str]) -> None:
        if params["follow"] == "0":
            raise StreamError("it hangs")

    with pytest.raises(StreamError, match="it hangs"):
        followed(Answer(ONE), before=hanging)


def last(count: int, *answers: Answer, **asked: Any) -> str:
    script = list(answers)
    reader = LogReader(LogRequest(tail=count, **asked), lambda _: script.pop(0), lambda: None, ByteQueue())  # type: ignore[arg-type,return-value]
    text = b"".join(chunk.data for chunk in reader.chunks(reader.first())).decode()
    assert script == []
    return text


def numbered(first: int, after: int, end: str = "") -> Answer:
    lines = [frame(f"{number}\n", NOW + number / 1000) for number in range(first, after)]
    return Answer(*lines, *([frame(end, NOW + after)] if end else []))


def lines_of(first: int, after: int) -> str:
    return "".join(f"{number}\n" for number in range(first, after))


@pytest.mark.parametrize("asked", [{}, {"until": NOW + 99.0}])
def test_many_last_lines_are_read_twice(asked: dict[str, Any]) -> None:
    assert last(6_000, numbered(0, 9_000), numbered(0, 9_000), **asked) == lines_of(3_000, 9_000)
    assert last(6_000, numbered(0, 9_000, "end"), numbered(0, 9_000, "end"), **asked) == lines_of(3_001, 9_000) + "end"
    assert last(6_000, numbered(0, 10), numbered(0, 10), **asked) == lines_of(0, 10)
    assert last(6_000, Answer(), Answer(), **asked) == ""


def test_lines_of_a_rotated_log_are_counted_anew() -> None:
    before, rotated = [numbered(0, 9_000)], [numbered(1_000, 9_000) for _ in range(3)]
    assert last(6_000, *before, *rotated) == lines_of(3_000, 9_000)


def test_a_log_is_followed_after_many_last_lines() -> None:
    answers = numbered(0, 8_000), numbered(0, 8_000), numbered(7_000, 8_002), numbered(7_000, 8_002)
    text, _ = followed(*answers, running=2, tail=6_000)
    assert text == lines_of(2_000, 8_002)
