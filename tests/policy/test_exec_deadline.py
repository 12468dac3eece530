"""Time limit of a command: its sources, its bounds, and the refusal of more."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels.exec_deadline import time_limit
from controller.policy.levels.levels import BUILT_IN, Policy
from controller.policy.sandbox import admit


@pytest.mark.parametrize(
    ("requested", "spec_limit", "most", "tty", "limit"),
    [
        (None, None, 0, False, 300),  # the daemon's own, where nobody says anything
        (None, None, 0, True, 0),  # but not for a person at a terminal
        (5, None, 0, True, 5),
        (0, None, 0, False, 0),
        (None, 3600, 0, False, 3600),
        (None, 60, 0, True, 60),
        (30, 60, 0, False, 30),
        (60, 60, 0, False, 60),
        (None, None, 100, False, 100),
        (None, None, 1000, False, 300),
        (None, None, 1000, True, 1000),
        (None, 2000, 1000, False, 1000),  # stored before the operator said so
        (1000, None, 1000, False, 1000),
    ],
)
def test_the_limit(requested: float | None, spec_limit: float | None, most: float, tty: bool, limit: float) -> None:
    assert time_limit(requested, spec_limit, (0, 0), most, 300, tty=tty) == limit


@pytest.mark.parametrize(
    ("requested", "spec_limit", "most", "message"),
    [
        (61, 60, 0, r"for 60 s at most \(execDeadlineSeconds of its template\), not 61 s"),
        (0, 60, 0, "not no limit"),
        (200, 300, 100, r"for 100 s at most \(exec_max_seconds of the daemon's settings\), not 200 s"),
        (0, None, 100, "exec_max_seconds"),
    ],
)
def test_more_is_refused(requested: float, spec_limit: float | None, most: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        time_limit(requested, spec_limit, (0, 0), most, 300, tty=False)


def test_a_template_above_the_hosts_maximum_is_refused() -> None:
    template = {"image": "paddock/python:1", "execDeadlineSeconds": 301}
    spec = SandboxSpec.model_validate({"template": template})
    assert admit(spec, Policy()) == ()
    assert admit(spec, Policy(exec_max_seconds=301)) == ()
    (refusal,) = admit(spec, Policy(exec_max_seconds=300))
    assert refusal.field == "spec.template.execDeadlineSeconds"
    assert "for 300 s at most on this host (exec_max_seconds)" in refusal.message


@given(
    st.one_of(st.none(), st.integers(0, 900)),
    st.one_of(st.none(), st.integers(1, 900)),
    st.tuples(st.integers(0, 900), st.integers(0, 900)),
    st.integers(0, 900),
    st.integers(0, 900),
    st.booleans(),
)
def test_no_command_exceeds_any_limit(
    requested: int | None, spec_limit: int | None, level: tuple[int, int], most: int, default: int, tty: bool
) -> None:
    bounds = [number for number in (spec_limit, level[1], most) if number]
    try:
        count = time_limit(requested, spec_limit, level, most, default, tty=tty)
    except ValueError:
        assert requested is not None
        assert bounds
        assert requested == 0 or requested > min(bounds)
        return
    assert all(0 < count <= bound for bound in bounds)
    assert requested is None or count == requested


def test_a_level_has_a_default_and_a_maximum() -> None:
    assert time_limit(None, None, (60, 0), 0, 300, tty=False) == 60
    assert time_limit(None, None, (60, 0), 0, 300, tty=True) == 0
    assert time_limit(None, None, (0, 120), 0, 300, tty=True) == 120
    with pytest.raises(ValueError, match="maxExecDeadlineSeconds of its security profile"):
        time_limit(121, None, (60, 120), 0, 300, tty=False)


def test_a_template_above_its_levels_maximum_is_refused() -> None:
    level = replace(BUILT_IN["full-isolation"], name="short", most_exec_seconds=60)
    template = {"image": "paddock/python:1", "execDeadlineSeconds": 61, "securityLevel": "short"}
    (refusal,) = admit(SandboxSpec.model_validate({"template": template}), Policy(levels={"short": level}))
    assert refusal.field == "spec.template.execDeadlineSeconds"
    assert "a command of level short may run for 60 s at most" in refusal.message
