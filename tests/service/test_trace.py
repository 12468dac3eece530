"""Which trace id a request has, and how long ids are kept."""

import pytest

from controller.service.trace import Traces, trace_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "given", [f"00-{TRACE}-{PARENT}-01", f" 00-{TRACE}-{PARENT}-00 ", f"cc-{TRACE}-{PARENT}-01-what"]
)
def test_a_callers_id_is_taken(given: str) -> None:
    assert trace_of([given]) == TRACE


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        [f"00-{TRACE}-{PARENT}-01"] * 2,
        [f"00-{TRACE}-{PARENT}-01-more"],
        [f"ff-{TRACE}-{PARENT}-01"],
        [f"00-{'0' * 32}-{PARENT}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE.upper()}-{PARENT}-01"],
        [f"00-{TRACE}-{PARENT}"],
        [f"00-{TRACE}\n-{PARENT}-01"],
    ],
)
def test_a_malformed_traceparent_gets_a_new_id(given: list[str]) -> None:
    trace = trace_of(given)
    assert len(trace) == 32
    assert int(trace, 16)
    assert trace not in (TRACE, trace_of(given))


def test_ids_of_another_daemon_are_kept() -> None:
    traces = Traces()
    for message in (f"{TRACE} a:1 b:2", "no id c:1", f"{TRACE} c", f"{TRACE} c:x :", ""):
        traces.hear(message)
    assert (traces.of("a", 1), traces.of("b", 2), traces.of("c", 1)) == (TRACE, TRACE, "")


def test_the_oldest_ids_go_first() -> None:
    traces = Traces(most=2)
    for uid in ("a", "b", "a", "c"):
        traces.keep(uid, 1, f"id of {uid}")
    assert [traces.of(uid, 1) for uid in "abc"] == ["id of a", "", "id of c"]
    assert traces.of("a", 2) == ""
