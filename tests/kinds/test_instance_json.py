"""Stored form of an instance's state. `instance_states.jsonl` are rows as they were stored before it had records."""

import json
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.planning.instance_json import STORED_FIELDS, state_from_json, state_to_json
from controller.kinds.planning.instance_state import InstanceState, StopRequest
from controller.kinds.runtime.run import Run
from controller.store.rows import to_text

ROWS = Path(__file__).with_name("instance_states.jsonl").read_text().splitlines()
EVERY_FIELD = json.loads(ROWS[0])


def attributes(record: Any, path: str = "") -> set[str]:
    """Return the paths of a state's fields that are no records of it; of tuples both the field's and its parts'."""
    names = [entry.name for entry in fields(record)] if is_dataclass(record) else list(getattr(record, "_fields", ()))
    if not names:
        return {path}
    parts = {inner for name in names for inner in attributes(getattr(record, name), f"{path}.{name}".lstrip("."))}
    return parts if is_dataclass(record) else parts | {path}


@pytest.mark.parametrize("row", ROWS)
def test_stored_rows_are_written_back_byte_for_byte(row: str) -> None:
    assert to_text(state_to_json(state_from_json(json.loads(row)))) == row


def test_each_stored_field_is_written_back_alone() -> None:
    for name, value in EVERY_FIELD.items():
        row = to_text({name: value})
        assert to_text(state_to_json(state_from_json(json.loads(row)))) == row


def test_the_first_row_has_every_stored_field() -> None:
    assert EVERY_FIELD.keys() - STORED_FIELDS.keys() == {"also", "newer"}  # a newer daemon's
    assert STORED_FIELDS.keys() <= EVERY_FIELD.keys()


def test_every_field_of_a_state_has_a_stored_name() -> None:
    stored = set(STORED_FIELDS.values()) | {"extra"}
    missing = {
        path
        for path in attributes(InstanceState())
        if path not in stored and not any(path.startswith(f"{attribute}.") for attribute in stored)
    }
    assert missing <= {"runs.stop", "lifecycle.idled", "lifecycle.expired"}  # their parts are stored


def test_former_rows_are_read_into_records() -> None:
    state = state_from_json(EVERY_FIELD)
    run = Run("c1", 1700000000.25)
    assert state.runs.stop == StopRequest(run, 1700000050.0, "IdleReaped")
    assert (state.claim.pool, state.container.hostname, state.security.user_id) == ("p-uid", "warm-abc", 2_000_000)
    assert state.memory.hibernation is not None
    assert state.memory.hibernation.run == state.runs.last
    assert (state.lifecycle.idled.generation, state.lifecycle.disk_excess.written_bytes) == (2, 1 << 30)
    assert state_from_json({"restarts": 0, "gpus": []}) == InstanceState()


def test_parts_that_a_newer_daemon_adds_are_cut() -> None:
    row = {name: value for name, value in EVERY_FIELD.items() if name in STORED_FIELDS}
    newer = {name: _with_a_newer_part(name, value) for name, value in row.items()}
    newer["hibernation"]["run"] = [*newer["hibernation"]["run"], 7]
    newer["last_end"]["limits"] = {**newer["last_end"]["limits"], "newer": 7}
    assert newer != row
    assert state_from_json(newer) == state_from_json(row)


def _with_a_newer_part(name: str, value: Any) -> Any:
    if name in ("asked_to_stop", "run", "changed", "insecure", "overfull"):
        return [*value, 7]
    return {**value, "newer": 7} if name in ("use", "saved", "checked") else deepcopy(value)
