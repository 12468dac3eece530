"""Limits of commands: output, time and slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import State
from controller.kinds.registry import Kind, discover
from controller.ports import StreamError
from controller.service import errors
from controller.service.exec.collected_output import Capped, Collector
from controller.service.exec.exec_limits import ExecSlots
from tests.fakes.engine import FakeEngine
from tests.helpers_api import ApiStack

PIECES = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=40)), max_size=40)


def sandbox_kind() -> Kind:
    kind = discover().by_word("sandbox")
    assert kind is not None
    return kind


@given(PIECES, st.integers(0, 400))
def test_output_within_the_limit_is_kept_whole(pieces: list[tuple[str, bytes]], limit: int) -> None:
    collector = Collector(limit)
    for stream, data in pieces:
        collector.add(Chunk(stream, data))
    assert collector.result is None
    collector.add(Chunk("exit", b"0"))
    done = collector.result
    assert done is not None
    for stream, stored, omitted in (
        ("stdout", done.stdout, done.stdout_omitted_bytes),
        ("stderr", done.stderr, done.stderr_omitted_bytes),
    ):
        text = b"".join(data for name, data in pieces if name == stream)
        assert omitted == max(0, len(text) - limit)
        if not omitted:
            assert stored == text
            continue
        head, tail = limit - limit // 2, limit // 2
        mark = f"\n[... {omitted} bytes left out ...]\n".encode()
        assert stored == text[:head] + mark + text[len(text) - tail :]


def test_memory_is_bounded_by_the_kept_output() -> None:
    capped = Capped(1000)
    for _ in range(10_000):
        capped.add(b"x" * 1000)
    assert len(capped.content()) < 1100
    assert capped.omitted_bytes == 10_000_000 - 1000


def test_released_slots_are_free_again() -> None:
    slots = ExecSlots(2)
    leave = [slots.take("a", "sandbox `a`"), slots.take("a", "sandbox `a`")]
    slots.check("b", "sandbox `b`")
    with pytest.raises(errors.TooManyRequests, match=r"runs 2 commands, .* raise exec_per_sandbox"):
        slots.check("a", "sandbox `a`")
    with pytest.raises(StreamError, match="the limit is 2"):
        slots.take("a", "sandbox `a`")
    for entry in leave:
        entry()
    slots.check("a", "sandbox `a`")
    assert not slots._taken


def test_a_command_holds_its_place_until_it_is_over(api: ApiStack) -> None:
    api.apply()
    api.view.show(api.sandbox())
    into = api.services.sandbox_streams
    into._exec_slots.most = 1
    api.streams.run = lambda **_: iter((Chunk("exit", b"0"),))
    opened = into.exec(sandbox_kind(), "default", "quickstart", ["true"])()
    with pytest.raises(errors.TooManyRequests):
        into.exec(sandbox_kind(), "default", "quickstart", ["true"])
    assert len(list(opened)) == 1
    into.exec(sandbox_kind(), "default", "quickstart", ["true"])

    def refused(**_: object) -> None:
        raise StreamError("no")

    api.streams.run = refused  # type: ignore[assignment]
    for _ in range(3):
        with pytest.raises(StreamError, match=r"^no$"):
            into.exec(sandbox_kind(), "default", "quickstart", ["true"])()


def test_what_escapes_is_recorded_and_then_killed(api: ApiStack) -> None:
    api.apply()
    container = api.view.show(api.sandbox(), State.RUNNING)
    engine = FakeEngine(clock=api.clock)
    acted: list[object] = []
    api.view.act = lambda action: acted.append(action) or engine.act(action)  # type: ignore[attr-defined]
    api.services.sandbox_streams._escapes.handler(api.sandbox(), container)("processes that nobody knows")
    (event,) = api.store.events(name="quickstart", kind="Sandbox")
    assert (event.type, event.reason) == ("Warning", "ExecEscaped")
    assert "left processes that nobody knows: all of the sandbox was killed" in event.message
    assert [str(entry) for entry in acted] == [f"signal KILL {container.name}"]


def test_what_can_not_be_recorded_is_not_done(api: ApiStack) -> None:
    api.apply()
    container = api.view.show(api.sandbox(), State.RUNNING)
    obj = api.sandbox()
    acted: list[object] = []
    api.view.act = acted.append  # type: ignore[attr-defined]
    api.store.close()
    api.services.sandbox_streams._escapes.handler(obj, container)("processes")
    assert not acted
