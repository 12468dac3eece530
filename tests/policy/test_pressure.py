"""Bands and hysteresis of what the machine has left."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.observed.pressure import NONE, RESOURCES, HostUse, Pressure, Supply
from controller.policy.host.pressure import BANDS, CALM_SECONDS, judge

GIB = 1 << 30


def memory(free: float, at: float = 0.0, total: float = 8.0) -> HostUse:
    """So many GiB of memory left; of 8 the threshold is 0.4."""
    return HostUse(at, memory=Supply(int(free * GIB), int(total * GIB)))


def after(*uses: HostUse) -> Pressure:
    pressure = NONE
    for use in uses:
        pressure = judge(pressure, use)
    return pressure


def test_enough_is_no_pressure() -> None:
    pressure = after(memory(4))
    assert (pressure.low, pressure.critical, pressure.measured, pressure.message()) == ((), (), ("memory",), "")


@pytest.mark.parametrize(("free", "low", "critical"), [(0.41, 0, 0), (0.39, 1, 0), (0.21, 1, 0), (0.19, 1, 1)])
def test_the_thresholds(free: float, low: int, critical: int) -> None:
    pressure = after(memory(free))
    assert (len(pressure.low), len(pressure.critical)) == (low, critical)


def test_recovery_needs_a_higher_mark() -> None:
    assert after(memory(0.19), memory(0.3)).critical == ("memory",)
    assert after(memory(0.19), memory(0.41)).critical == ()
    assert after(memory(0.39), memory(0.5)).low == ("memory",)


def test_pressure_ends_after_a_stable_time() -> None:
    uses = [memory(0.3), memory(0.7, 10), memory(0.7, 9 + CALM_SECONDS)]
    assert after(*uses).low == ("memory",)
    assert after(*uses, memory(0.7, 10 + CALM_SECONDS)).low == ()
    assert after(*uses, memory(0.5, 40), memory(0.7, 50), memory(0.7, 11 + CALM_SECONDS)).low == ("memory",), "anew"


@pytest.mark.parametrize(("shares", "stalls"), [((0.09,), 0), ((0.11,), 1), ((0.11, 0.06), 1), ((0.11, 0.04), 0)])
def test_waits_for_memory_end_at_a_lower_mark(shares: tuple[float, ...], *, stalls: bool) -> None:
    pressure = after(*(HostUse(0.0, memory_stall=share) for share in shares))
    assert (pressure.stalls, pressure.low) == (stalls, ())


@pytest.mark.parametrize(
    ("free", "swap_in", "stalls"), [(4, 0, 0), (4, None, 1), (4, GIB, 1), (0.75, 0, 1), (0.85, 0, 0)]
)
def test_waits_at_own_limits_are_no_stalls(free: float, swap_in: float | None, *, stalls: bool) -> None:
    use = replace(memory(free), memory_stall=0.9, swap_in=swap_in)
    assert after(use).stalls == bool(stalls)


def test_a_clock_set_back_prolongs_no_pressure() -> None:
    assert after(memory(0.3, 1000), memory(0.7, 1000), memory(0.7, 10)).low == ()


def test_unreadable_resources_keep_their_level() -> None:
    pressure = judge(after(memory(0.3)), HostUse(5.0))
    assert (pressure.low, pressure.measured) == (("memory",), ())
    assert judge(pressure, None).low == ("memory",)


def test_big_machines_are_not_low_with_gigabytes_free() -> None:
    assert after(memory(1, total=256)).low == ()


def test_it_can_be_turned_off_and_scaled() -> None:
    assert judge(after(memory(0.1)), memory(0.1), 0.0) is NONE
    assert judge(NONE, memory(4), 100.0).low == ("memory",)


@given(
    free=st.lists(st.tuples(*[st.integers(0, 100)] * 4), max_size=12),
    scale=st.floats(0.1, 10),
)
def test_critical_is_a_subset_of_low(free: list[tuple[int, ...]], scale: float) -> None:
    pressure = NONE
    for at, group in enumerate(free):
        supplies = {name: Supply(amount, 100) for name, amount in zip(RESOURCES, group, strict=True)}
        use = HostUse(float(at), **supplies)
        pressure = judge(pressure, use, scale)
        assert set(pressure.critical) <= set(pressure.low) <= set(BANDS)
        assert judge(pressure, use, scale) is pressure
