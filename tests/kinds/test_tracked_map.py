"""Tracked mappings know what changed between two of them, and what is derived from them follows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import given, settings

from controller.kinds.common.tracked_map import TrackedMap, changed_keys, derived
from tests.examples import examples

KEYS = "abcdef"
STEPS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(KEYS), st.integers(0, 2)), st.sets(st.sampled_from(KEYS))), max_size=12
)


@dataclass(frozen=True)
class Total:
    """Sum of all values, and the keys in order."""

    total: int = 0
    keys: tuple[str, ...] = ()

    def with_changes(self, changes: Iterable[tuple[str, int | None, int | None]]) -> "Total":
        total, keys = self.total, self.keys
        for key, before, now in changes:
            total += (now or 0) - (before or 0)
            keys = tuple(name for name in keys if name != key or (before is not None and now is not None))
            keys += (key,) if before is None and now is not None else ()
        return Total(total, keys)


def of_all(values: Mapping[str, int]) -> Total:
    return Total(sum(values.values()), tuple(values))


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, st.integers(0, 11), st.booleans())
def test_each_step_is_found_again(steps: list[tuple[dict[str, int], set[str]]], since: int, asks: bool) -> None:
    line = [TrackedMap({"a": 1, "b": 2})]
    for values, removed in steps:
        if asks:
            derived(line[-1], Total())
        line.append(line[-1].updated(values, removed))
        expected = {**line[-2], **values}
        assert line[-1] == {key: number for key, number in expected.items() if key not in removed}
    now, before = line[-1], line[min(since, len(line) - 1)]
    differing = {key for key in KEYS if before.get(key) is not now.get(key)}
    assert changed_keys(before, now) == differing == changed_keys(dict(before), now)
    total = derived(now, Total())
    assert total.total == of_all(now).total
    assert set(total.keys) == set(now)


def test_a_second_successor_is_compared_whole() -> None:
    first = TrackedMap({"a": 1})
    updated, tracked_map = first.updated({"b": 2}), first.updated({"c": 3})
    assert (updated.since(first), tracked_map.since(first)) == (frozenset("b"), None)
    assert changed_keys(updated, tracked_map) == {"b", "c"}
    assert derived(updated, Total()).total == 3
    assert derived(tracked_map, Total()).total == 4
    assert derived(first, Total()).total == 1


def test_an_update_without_changes_is_itself() -> None:
    first = TrackedMap({"a": 1})
    assert first.updated({"a": 1}, ("missing",)) is first


def test_steps_that_are_forgotten_are_compared_whole() -> None:
    first = now = TrackedMap({"a": 0})
    for number in range(1, 300):
        now = now.updated({"a": number})
    assert now.since(first) is None
    assert changed_keys(first, now) == {"a"}


def test_keys_are_ordered_as_they_came() -> None:
    now = TrackedMap({"b": 1, "a": 2}).updated({"c": 3}).updated({"b": 4}).updated({}, ("a",)).updated({"a": 5})
    assert now.in_order({"a", "b", "c"}) == list(now) == ["b", "c", "a"]
