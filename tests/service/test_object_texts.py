"""The JSON of stored objects, shared by lists and watches."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.api.common.listing import list_of
from controller.api.common.queries import ListQuery
from controller.api.streams.listing import Parts
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, discover
from controller.service.listing import serialize
from controller.service.objects.objects import Objects
from controller.service.objects.texts import ObjectTexts, WholeList
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.contract.store_backends import new_sandbox
from tests.migrated import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(tmp_path) as created:
        yield created


def sandbox() -> Kind:
    name = discover().by_name("Sandbox")
    assert name is not None
    return name


def objects_of(store: SqlStore) -> Objects:
    return Objects(store=store, registry=discover(), wake=lambda: None, clock=HandClock(0.0))


def listed(objects: Objects, texts: ObjectTexts, limit: int = 0) -> list[dict[str, Any]]:
    """Return the items of a list as they are sent."""
    parts = Parts(sandbox(), objects, texts, None, ListQuery(limit=limit), "")
    return [json.loads(item) for item in parts.read()]


def test_a_list_shows_each_change_once_cached(store: SqlStore) -> None:
    objects, texts = objects_of(store), ObjectTexts()
    with store.transaction() as transaction:
        stored = [transaction.put(new_sandbox(f"b-{number}")) for number in range(3)]
    for limit in (0, 2, 3):
        plain = json.loads(bytes(list_of(sandbox(), objects.page(sandbox(), limit=limit)).body))
        assert listed(objects, texts, limit) == plain["items"]
    with store.transaction() as transaction:
        transaction.put(replace(stored[1], labels={"a": "b"}))
    labels = [item["metadata"].get("labels") for item in listed(objects, texts)]
    assert labels == [None, {"a": "b"}, None]


def test_an_unchanged_object_is_not_decoded_again(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    objects, texts = objects_of(store), ObjectTexts()
    with store.transaction() as transaction:
        first = [transaction.put(new_sandbox(f"b-{number}")) for number in range(3)]
    listed(objects, texts)
    with store.transaction() as transaction:
        transaction.put(replace(first[2], labels={"a": "b"}))
    decoded: list[str] = []
    real = serialize.obj

    def noted(obj: StoredObject) -> serialize.Json:
        decoded.append(obj.name)
        return real(obj)

    monkeypatch.setattr(serialize, "obj", noted)
    listed(objects, texts)
    assert decoded == ["b-2"]


def test_an_older_version_does_not_displace_a_newer() -> None:
    texts, new = ObjectTexts(), new_sandbox("b", resource_version=7, labels={"at": "7"})
    old = replace(new, resource_version=5, labels={"at": "5"})
    document = texts.json(new)
    assert json.loads(texts.json(old))["metadata"]["labels"] == {"at": "5"}
    assert texts.cached(new.uid, 7) is document
    assert texts.cached(new.uid, 5) is None


def test_the_oldest_texts_go_first_within_the_bound() -> None:
    sandboxes = [new_sandbox(f"b-{number}", resource_version=number + 1) for number in range(5)]
    count = len(ObjectTexts().json(sandboxes[0]))
    texts = ObjectTexts(most_bytes=3 * count)
    for stored in sandboxes[:3]:
        texts.json(stored)
    texts.json(sandboxes[0])
    for entry in sandboxes[3:]:
        texts.json(entry)
    flags = [texts.cached(one_sandbox.uid, one_sandbox.resource_version) is not None for one_sandbox in sandboxes]
    assert flags == [True, False, False, True, True]


def test_objects_that_are_not_stored_are_not_held() -> None:
    texts, computed = ObjectTexts(), new_sandbox("b")
    assert texts.json(computed) == texts.json(replace(computed))
    assert texts.cached(computed.uid, 0) is None


def test_a_list_is_held_until_the_next_write() -> None:
    texts, ours, every = ObjectTexts(), WholeList("Sandbox", "default"), WholeList("Sandbox", None)
    texts.keep_list(ours, 7, b"of seven")
    assert texts.cached_list(ours, 7) == b"of seven"
    assert texts.cached_list(ours, 8) is None
    assert texts.cached_list(every, 7) is None
    texts.keep_list(ours, 8, b"x" * (2 << 20))  # too long to be held
    assert (texts.cached_list(ours, 7), texts.cached_list(ours, 8)) == (None, None)


def test_the_oldest_list_goes_first() -> None:
    texts, whole_lists = ObjectTexts(), [WholeList("Sandbox", f"n-{number}") for number in range(6)]
    for whole_list in whole_lists:
        texts.keep_list(whole_list, 7, b"[]")
    assert [texts.cached_list(entry, 7) is not None for entry in whole_lists] == [False, False, True, True, True, True]
