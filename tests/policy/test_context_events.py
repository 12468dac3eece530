"""Events of code contexts, read byte by byte: what is of another id, type, form or order is dropped and counted."""

import json
import time
from typing import Any

import pytest

from controller.kinds.runtime.context import Completions, ContextEvent
from controller.policy.inside import context_events
from controller.policy.inside.context_events import EventReader, completions_of, context_of, event_of

ID = "0123456789abcdef"
STARTED = {"type": "started", "context": "python", "language": "python", "engine": "ipython", "reason": ""}
STARTED |= {"fresh": True, "lost": ""}
DONE = {"type": "done", "status": "ok", "count": 1, "seconds": 0.1, "stateLost": False, "exitCode": None}
RESULT = {"type": "result", "main": True, "update": False, "display": "", "data": {"text/plain": "42"}}


def line(event: dict[str, Any], execution: str = ID) -> bytes:
    return json.dumps({"execution": execution, **event}).encode() + b"\n"


def read(data: bytes, size: int = 1) -> tuple[list[ContextEvent], EventReader]:
    reader = EventReader(ID)
    events = [event for at in range(0, len(data), size) for event in reader.feed(data[at : at + size])]
    return events, reader


def test_events_are_the_same_however_they_are_cut() -> None:
    data = line(STARTED) + line({"type": "stdout", "text": "grüß\n"}) + line(RESULT) + line(DONE)
    expected = ["started", "stdout", "result", "done"]
    for size in (1, 7, len(data)):
        events, reader = read(data, size)
        assert [event.type for event in events] == expected
        assert events[1].fields == {"text": "grüß\n"}
        assert (reader.done, reader.dropped) == (True, 0)


@pytest.mark.parametrize(
    "forged",
    [
        line({"type": "stdout", "text": "x"}, "another"),
        line({"type": "shell", "text": "x"}),
        line({"type": "stdout", "text": 1}),
        line({"type": "stdout"}),
        line(STARTED),  # a second one
        line({**RESULT, "data": {}}),
        line({**RESULT, "data": {"text/html; charset=x": "y"}}),
        line({**RESULT, "data": {"text/plain": ["a"]}}),
        line({**RESULT, "main": "yes"}),
        line({**RESULT, "data": dict.fromkeys((f"text/x{n}" for n in range(40)), "")}),
        line({**DONE, "status": "root"}),
        line({**DONE, "count": True}),
        line({**DONE, "exitCode": 256}),
        b'{"execution":"' + ID.encode() + b'","type":"done","status":"ok","count":1,"seconds":NaN,"stateLost":false}\n',
        b"[]\n",
        b"not json\n",
        b"[" * 20_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_forgeries_are_dropped_and_said(forged: bytes) -> None:
    events, reader = read(line(STARTED) + forged + line(DONE), 64)
    assert [event.type for event in events] == ["started", "notice", "done"]
    assert events[1].fields["text"].startswith("1 events were dropped")
    assert reader.dropped == 1


def test_nothing_counts_after_the_end_or_before_the_start() -> None:
    events, _ = read(line({"type": "stdout", "text": "early"}) + line(STARTED) + line(DONE) + line(RESULT), 16)
    assert [event.type for event in events] == ["started", "notice", "done"]


def test_an_endless_line_or_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_events, "LINE_BYTES", 100)
    monkeypatch.setattr(context_events, "EXECUTION_BYTES", 1000)
    reader = EventReader(ID)
    with pytest.raises(ValueError, match="a line without an end"):
        list(reader.feed(b"x" * 101))
    reader = EventReader(ID)
    with pytest.raises(ValueError, match="for one execution"):
        list(reader.feed(b"\n" * 1001))


def test_texts_are_cut_to_their_bounds() -> None:
    error = event_of(line({"type": "error", "name": "E" * 999, "value": "v", "traceback": "t" * 200_000})[:-1], ID)
    assert error is not None
    assert [len(str(error.fields[name])) for name in ("name", "value", "traceback")] == [256, 1, 131_072]


def test_a_description_of_another_form_is_none() -> None:
    texts = dict.fromkeys(("engine", "version", "reason", "cwd", "forkOf"), "")
    numbers = dict.fromkeys(("executions", "queued", "memoryBytes", "processes"), 0)
    good = {"name": "a", "language": "bash", "state": "idle", "created": 1.5, **texts, **numbers}
    assert context_of(good) is not None
    context = context_of({**good, "reason": "a\x1b[31mb\nc"})
    assert context is not None
    assert context.reason == "a [31mb c"
    bad: list[Any] = [
        *([], None, {}, {**good, "name": "../x"}, {**good, "language": "ruby"}, {**good, "state": "root"}),
        *({**good, "memoryBytes": -1}, {**good, "processes": True}, {**good, "created": "now"}, {**good, "cwd": 1}),
    ]
    assert [context_of(description) for description in bad] == [None] * len(bad)


def test_a_line_byte_by_byte_costs_as_much_as_a_short_one() -> None:
    def seconds(before: int) -> float:
        reader, started_at = EventReader("run"), time.thread_time()
        list(reader.feed(b"x" * before))
        for _ in range(3000):
            list(reader.feed(b"x"))
        return time.thread_time() - started_at

    assert seconds(7 << 20) < 20 * seconds(1)


def test_matches_are_printable_and_of_the_code() -> None:
    answer = {"replaced": 2, "matches": ["data", "da\x1b]0;x\x07", 7, "d" * 300, "date"]}
    assert completions_of(answer, "da") == Completions(2, ("data", "date"))
    bad: list[dict[str, Any]] = [
        *({}, {**answer, "replaced": 3}, {**answer, "replaced": True}, {**answer, "replaced": -1}),
        *({**answer, "matches": "data"}, {**answer, "matches": ["a"] * 201}),
    ]
    assert [completions_of(answer, "da") for answer in bad] == [None] * len(bad)
