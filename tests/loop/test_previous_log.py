"""`logs -p`: the run that ended last, cut out of its container's log, or its last words where that is replaced."""

from collections.abc import Iterator
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.log_lines import last_lines
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.instance_state import Termination
from controller.kinds.registry import Kind, discover
from controller.service import errors
from controller.service.sandbox.previous_log import PreviousLog, window
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def sandbox() -> Kind:
    word = discover().by_word("sandbox")
    assert word is not None
    return word


def previous(harness: LoopHarness, tail: int | None = None) -> PreviousLog:
    return harness.services.previous.log(sandbox(), "default", "web", tail=tail)


def text(log: PreviousLog) -> str:
    return b"".join(chunk.data for chunk in log.open()).decode()


def speaks(harness: LoopHarness, *words: str) -> None:
    for word in words:
        harness.clock.advance(1)
        harness.engine.say(harness.container_name("web"), f"{word}\n")


def ends(harness: LoopHarness) -> None:
    harness.clock.advance(1)
    harness.engine.exit(harness.container_name("web"), 3)
    harness.settle()


def test_each_run_is_cut_out_of_the_log_that_goes_on(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    with pytest.raises(errors.Conflict, match="has no previous run"):
        previous(harness)
    speaks(harness, "one", "two")
    ends(harness)
    speaks(harness, "three")
    assert (text(previous(harness)), text(previous(harness, tail=1)), previous(harness).note) == (
        "one\ntwo\n",
        "two\n",
        "",
    )
    ends(harness)
    speaks(harness, "four")
    assert text(previous(harness)) == "three\n"


def test_of_a_container_that_was_replaced_the_last_words_are_left(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    speaks(harness, "one", "two")
    harness.apply("web", template={"image": "other:1"})
    harness.settle()
    log = previous(harness, tail=1)
    assert text(log) == "two\n"
    assert "was replaced" in log.note


END = Termination("c", 1, "Error", started_at=100, finished_at=200, log_since=50)
BOX = Container(id="c", name="n", uid="u", state=State.RUNNING, started_at=210)


def test_the_cut_is_in_the_middle_of_the_pause() -> None:
    assert window(END, BOX) == (50, 205)
    assert window(END, replace(BOX, state=State.EXITED, started_at=100)) == (50, 0)
    unseen = replace(END, finished_at=90, reason="EngineLost")
    assert window(unseen, BOX) == (50, 210), "the engine did not see the end"
    at_once = replace(END, finished_at=END.started_at - 0.004)
    assert window(at_once, BOX) == (50, (END.started_at + 210) / 2), "it had ended before its start was noted"


def test_last_lines_are_whole_though_they_come_in_pieces() -> None:
    chunks = [Chunk("stdout", entry) for entry in (b"one\n", b"tw", b"o\n", b"thr", b"ee\n")]
    joined = [b"".join(line.data for line in last_lines(chunks, count)) for count in (0, 1, 2, 9)]
    assert joined == [b"", b"three\n", b"two\nthree\n", b"one\ntwo\nthree\n"]


@given(
    st.lists(st.lists(st.sampled_from([b"a", b"\n", b"bc"]), max_size=6).map(b"".join), max_size=8), st.integers(0, 6)
)
def test_last_lines_are_those_of_the_whole(pieces: list[bytes], count: int) -> None:
    observed = b"".join(line.data for line in last_lines([Chunk("stdout", piece) for piece in pieces], count))
    lines = b"".join(pieces).split(b"\n")
    contents = [line + b"\n" for line in lines[:-1]] + lines[-1:] * bool(lines[-1])
    assert observed == b"".join(contents[len(contents) - count :] if count < len(contents) else contents)
