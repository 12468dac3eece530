"""The laws of the three-way merge, and examples that show what they mean."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.service.objects.merge import merge

_LEAF = st.integers(0, 3) | st.sampled_from(["a", "b"]) | st.booleans()
_FIELD = st.sampled_from(["a", "b", "c", "d"])


def _keyed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    item = st.fixed_dictionaries({"name": st.sampled_from(["x", "y", "z"])}, optional={"v": inner})
    return st.lists(item, max_size=3, unique_by=lambda each: each["name"])


_VALUE = st.recursive(
    _LEAF,
    lambda inner: st.dictionaries(_FIELD, inner, max_size=3) | _keyed(inner) | st.lists(_LEAF, max_size=3),
    max_leaves=12,
)
_SPEC = st.dictionaries(_FIELD, _VALUE, max_size=4)


@settings(deadline=None)
@given(_SPEC, _SPEC, _SPEC)
def test_applying_again_changes_nothing(last: Any, new: Any, live: Any) -> None:
    once = merge(last, new, live)
    assert merge(new, new, once) == once


@settings(deadline=None)
@given(_SPEC, _SPEC)
def test_fields_of_others_are_not_removed(new: Any, live: Any) -> None:
    merged = merge({}, new, live)
    assert set(merged) == set(new) | set(live)
    assert all(merged[key] == live[key] for key in set(live) - set(new))


@settings(deadline=None)
@given(_SPEC, _SPEC, _SPEC)
def test_only_dropped_fields_are_removed(last: Any, new: Any, live: Any) -> None:
    removed = set(live) - set(merge(last, new, live))
    assert removed == {key for key in live if key in last and key not in new}


@settings(deadline=None)
@given(_SPEC, _SPEC, _SPEC)
def test_what_is_applied_is_there(last: Any, new: Any, live: Any) -> None:
    assert _holds(merge(last, new, live), new)


@settings(deadline=None)
@given(_SPEC, _SPEC)
def test_applied_to_nothing_it_is_itself(last: Any, new: Any) -> None:
    assert merge(last, new, {}) == new


@settings(deadline=None)
@given(_SPEC, _SPEC)
def test_taking_everything_back_leaves_what_others_set(new: Any, live: Any) -> None:
    remaining = {key: value for key, value in live.items() if key not in new}
    assert merge(new, {}, merge({}, new, live)) == remaining


@settings(deadline=None)
@given(_SPEC, _SPEC, _SPEC)
def test_nothing_that_goes_in_is_changed(last: Any, new: Any, live: Any) -> None:
    before = repr((last, new, live))
    merge(last, new, live)
    assert repr((last, new, live)) == before


def _holds(merged: Any, new: Any) -> bool:
    """Return True if the merged value contains all that was applied. Items of others may be there too."""
    if new == []:
        return isinstance(merged, list)
    if isinstance(new, dict):
        return isinstance(merged, dict) and all(_holds(merged.get(key), entry) for key, entry in new.items())
    if isinstance(new, list) and new and all(isinstance(entry, dict) and "name" in entry for entry in new):
        by = {entry["name"]: entry for entry in merged}
        return all(_holds(by.get(entry["name"]), entry) for entry in new)
    return bool(merged == new)


CASES = {
    "others' fields stay": ({"a": 1}, {"a": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 3}),
    "a field left out goes": ({"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3}),
    "null takes away": ({}, {"a": None}, {"a": 1, "b": 2}, {"b": 2}),
    "null inside a new mapping is nothing": ({}, {"a": {"b": None, "c": 1}}, {}, {"a": {"c": 1}}),
    "mappings merge deeply": ({}, {"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"c": 2, "b": 1}}),
    "a value replaces a mapping": ({}, {"a": 1}, {"a": {"b": 1}}, {"a": 1}),
    "lists without keys are replaced": ({"l": [1, 2]}, {"l": [3]}, {"l": [1, 2, 9]}, {"l": [3]}),
    "items of others stay where they are": (
        {"l": [{"name": "x"}, {"name": "y"}]},
        {"l": [{"name": "x", "v": 1}, {"name": "z"}]},
        {"l": [{"name": "x"}, {"name": "other"}, {"name": "y"}]},
        {"l": [{"name": "x", "v": 1}, {"name": "other"}, {"name": "z"}]},
    ),
    "items merge by mountPath": (
        {"l": [{"mountPath": "/tmp", "size": "1"}]},
        {"l": [{"mountPath": "/tmp", "size": "2"}]},
        {"l": [{"mountPath": "/tmp", "size": "1", "mode": "x"}]},
        {"l": [{"mountPath": "/tmp", "size": "2", "mode": "x"}]},
    ),
    "items merge by containerPort": (
        {},
        {"l": [{"containerPort": 1, "hostPort": 2}]},
        {"l": [{"containerPort": 3}]},
        {"l": [{"containerPort": 3}, {"containerPort": 1, "hostPort": 2}]},
    ),
    "a key that occurs twice is no key": (
        {},
        {"l": [{"name": "x"}, {"name": "x"}]},
        {"l": [{"name": "y"}]},
        {"l": [{"name": "x"}, {"name": "x"}]},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_examples(case: tuple[Any, Any, Any, Any]) -> None:
    last, new, live, merged = case
    assert merge(last, new, live) == merged
