"""Snapshots by the names of their records' fields: `snapshot_with(..., pressure=Pressure(), in_flight=frozenset())`."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from controller.kinds.observed.observed import Observation
from controller.kinds.planning.snapshot import (
    DesiredObjects,
    HostView,
    Measurements,
    ModelView,
    PassProgress,
    PlanningRules,
    Sandbox,
    Snapshot,
)

_RECORDS = {
    "desired": DesiredObjects,
    "rules": PlanningRules,
    "measured": Measurements,
    "host": HostView,
    "models": ModelView,
    "progress": PassProgress,
}
_RECORD_OF = {field.name: record for record, kind in _RECORDS.items() for field in fields(kind)}


def snapshot_with(
    now: float, instance_id: str, sandboxes: Mapping[str, Sandbox], observed: Observation, **changes: Any
) -> Snapshot:
    """Return a snapshot with these fields; all others have their defaults."""
    return changed_snapshot(Snapshot(now, instance_id, DesiredObjects(sandboxes), observed), **changes)


def changed_snapshot(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """Return a copy of a snapshot with these fields, each in the record that has it."""
    own_changes = {name: value for name, value in changes.items() if name not in _RECORD_OF}
    for record in _RECORDS:
        if record_changes := {name: value for name, value in changes.items() if _RECORD_OF.get(name) == record}:
            own_changes[record] = replace(getattr(snapshot, record), **record_changes)
    return replace(snapshot, **own_changes)
