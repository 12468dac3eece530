"""Growth, as the gauges judge it."""

from dataclasses import replace

from tests.soak.gauges import Gauges, grown

STILL = Gauges(50, 20, 100, 30, 0, 3, 0, 4, 40, 12)


def test_wobbling_is_no_growth_and_a_slow_leak_is() -> None:
    wobbling = [replace(STILL, fds=50 + number % 3) for number in range(12)]
    assert grown(wobbling) == {}
    leaking = [replace(STILL, fds=50 + number % 3 + number // 2) for number in range(30)]
    assert list(grown(leaking)) == ["fds"]


def test_the_first_round_does_not_count_and_memory_has_a_margin() -> None:
    assert grown([replace(STILL, threads=1), STILL, STILL]) == {}
    assert grown([STILL, STILL, replace(STILL, memory_mib=103)]) == {}
    assert grown([STILL, STILL, replace(STILL, memory_mib=110, networks=4)]) == {
        "memory_mib": "100 -> 110",
        "networks": "3 -> 4",
    }
