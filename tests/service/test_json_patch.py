"""The laws of the two patch formats."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.service.objects.json_patch import BadPatch, Mismatch, json_patch, merge_patch, merge_patch_between

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner))
SET = st.recursive(
    st.booleans() | st.integers(-9, 9), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
DOCUMENTS = st.dictionaries(st.sampled_from("abc"), SET)


@pytest.mark.parametrize(
    ("target", "patch", "wanted"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples_of_the_rfc(target: Any, patch: Any, wanted: Any) -> None:
    assert merge_patch(target, patch) == wanted


@given(JSON, JSON)
def test_a_merge_patch_twice_is_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(DOCUMENTS, DOCUMENTS)
def test_the_patch_between_two_turns_one_into_the_other(before: Any, after: Any) -> None:
    assert merge_patch(before, merge_patch_between(before, after)) == after


@pytest.mark.parametrize(
    ("target", "operations", "wanted"),
    [  # RFC 6902, appendix A
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": [1, 3]}, [{"op": "add", "path": "/foo/1", "value": 2}], {"foo": [1, 2, 3]}),
        ({"foo": [1, 2, 3]}, [{"op": "remove", "path": "/foo/1"}], {"foo": [1, 3]}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/b"}], {"a": {}, "c": {"b": 1}}),
        ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": [2, 3, 1]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ],
)
def test_json_patch_examples_of_the_rfc(target: Any, operations: Any, wanted: Any) -> None:
    assert json_patch(target, operations) == wanted


@pytest.mark.parametrize(("found", "tested"), [("10", 10), (1, True), ([1, 2], [2, 1]), ({"a": 1}, {})])
def test_unequal_values_are_a_mismatch(found: Any, tested: Any) -> None:
    with pytest.raises(Mismatch):
        json_patch({"a": found}, [{"op": "test", "path": "/a", "value": tested}])


def test_the_target_stays_as_it_was() -> None:
    target = {"a": [1, {"b": 2}]}
    json_patch(target, [{"op": "add", "path": "/a/1/c", "value": 3}, {"op": "remove", "path": "/a/0"}])
    assert target == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize("path", ["/a/#b", "/a/~0b", "/c/#1", "/c/+1", "/c/ 1", "/c/01"])
def test_the_librarys_own_pointers_are_refused(path: str) -> None:
    with pytest.raises(BadPatch, match=r"operation 1 \(remove\): there is no"):
        json_patch({"a": {"b": 1}, "c": [1, 2]}, [{"op": "remove", "path": path}])


def test_a_text_as_root_is_not_parsed() -> None:
    operations = [{"op": "replace", "path": "", "value": "[1]"}, {"op": "test", "path": "", "value": "[1]"}]
    assert json_patch({"a": 1}, operations) == "[1]"


def test_copies_that_fill_memory_are_refused() -> None:
    double = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
    with pytest.raises(BadPatch, match="copies more than 1 MiB"):
        json_patch({"a": ["x" * 1000]}, double)
