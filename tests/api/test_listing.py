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
from tests.migrated import open_store

AT = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(tmp_path) as created:
        yield created


@pytest.fixture
def kind() -> Kind:
    name = discover().by_name("Event")
    assert name is not None
    return name


def fill(store: SqlStore, count: int) -> list[Event]:
    message = "Killed: exit code 137, by signal 9; “%s”"
    events = [
        Event(
            ObjectRef("Sandbox", "default", f"box-{index % 12}", f"{index:032x}"),
            "Normal",
            "Killed",
            message % index,
            AT,
        )
        for index in range(count)
    ]
    with store.transaction() as transaction:
        for event in events:
            transaction.add_event(event)
    return events


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
    stored = [event_object(event) for event in fill(store, count)]
    object_page = objects_of(store).list(kind)
    read: dict[str, Any] = json.loads(list_of(kind, object_page).body)
    assert read == {
        **serialize.list_head("Event", 0),
        "items": [serialize.object_json(kind, entry) for entry in stored],
    }
    assert json.loads(table_of(kind, object_page, AT).body) == table.table(kind, stored, AT)


def test_the_newest_of_them_with_and_without_selectors(store: SqlStore, kind: Kind) -> None:
    events = fill(store, 600)
    objects = objects_of(store)

    def messages(fields: str, limit: int) -> list[str]:
        observed = objects.list(kind, fields=fields, limit=limit).objects
        return [stored.spec["message"] for stored in observed]

    of_one = [event.message for event in events if event.ref.name == "box-3"]
    assert messages("", 7) == [event.message for event in events[-7:]]
    assert messages("involvedObject.name=box-3", 7) == of_one[-7:]
    assert messages("involvedObject.name=box-3,type!=Warning", 7) == of_one[-7:]
    assert messages("involvedObject.name=box-3,involvedObject.name=box-4", 7) == []
    assert messages(f"metadata.name={event_object(events[0]).name}", 1) == [events[0].message]
    assert messages("", 0) == [event.message for event in events]
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
