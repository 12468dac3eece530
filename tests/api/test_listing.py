"""Long lists, serialized in pieces."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.common.listing import list_of, table_of
from controller.kinds.meta import Event, ObjectRef
from controller.kinds.registry import Kind, discover
from controller.service.listing import serialize, table
from controller.service.objects.objects import Objects
from controller.service.sources.event import EventSource, event_object
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock

AT = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    made = SqlStore(f"sqlite:///{tmp_path / 'paddock.db'}")
    made.open()
    yield made
    made.close()


@pytest.fixture
def kind() -> Kind:
    found = discover().by_name("Event")
    assert found is not None
    return found


def fill(store: SqlStore, count: int) -> list[Event]:
    words = "Killed: exit code 137, by signal 9; “%s”"
    made = [
        Event(ObjectRef("Sandbox", "default", f"box-{each % 12}", f"{each:032x}"), "Normal", "Killed", words % each, AT)
        for each in range(count)
    ]
    with store.transaction() as transaction:
        for each in made:
            transaction.add_event(each)
    return made


def objects_of(store: SqlStore) -> Objects:
    return Objects(
        store=store,
        registry=discover(),
        wake=lambda: None,
        clock=HandClock(AT),
        sources={"Event": EventSource(store)},
    )


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100, 251, 600])
def test_nothing_is_lost_between_the_pieces(store: SqlStore, kind: Kind, count: int) -> None:
    stored = [event_object(each) for each in fill(store, count)]
    found = objects_of(store).list(kind)
    read: dict[str, Any] = json.loads(list_of(kind, found).body)
    assert read == {**serialize.list_head("Event", 0), "items": [serialize.object_json(kind, each) for each in stored]}
    assert json.loads(table_of(kind, found, AT).body) == table.table(kind, stored, AT)


def test_the_newest_of_them_with_and_without_selectors(store: SqlStore, kind: Kind) -> None:
    made = fill(store, 600)
    objects = objects_of(store)

    def messages(fields: str, limit: int) -> list[str]:
        found = objects.list(kind, fields=fields, limit=limit).objects
        return [each.spec["message"] for each in found]

    of_one = [each.message for each in made if each.ref.name == "box-3"]
    assert messages("", 7) == [each.message for each in made[-7:]]
    assert messages("involvedObject.name=box-3", 7) == of_one[-7:]
    assert messages("involvedObject.name=box-3,type!=Warning", 7) == of_one[-7:]
    assert messages("involvedObject.name=box-3,involvedObject.name=box-4", 7) == []
    assert messages(f"metadata.name={event_object(made[0]).name}", 1) == [made[0].message]
    assert messages("", 0) == [each.message for each in made]
    assert len(objects.list(kind, labels="!app", limit=5).objects) == 5


def test_a_long_list_takes_little_more_memory_than_its_text(store: SqlStore, kind: Kind) -> None:
    """Whatever many small values take at once, the daemon keeps for good."""
    fill(store, 5000)
    objects = objects_of(store)
    objects.list(kind, limit=1)
    tracemalloc.start()
    try:
        answer = list_of(kind, objects.list(kind))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(answer.body) > 2 << 20
    assert most < 3.5 * len(answer.body)  # 2.4; all objects at once take 6.3
