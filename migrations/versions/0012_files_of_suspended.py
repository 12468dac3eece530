"""Stored sandboxes keep what a suspension did before: `onSuspend: Discard`, `onIdle: Suspend`.

Beside what was last applied stands that they are defaults of before: a file applied anew gets those of now.
"""

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_Change = Callable[[dict[str, Any], tuple[str, ...], dict[str, Any]], None]

_AT_ONCE = 500
_BEFORE = {"onIdle": "Suspend", "onSuspend": "Discard"}
_NEW = ("onSuspend", "suspendAfterSeconds")
_OBJECTS = sa.table("objects", *map(sa.column, ("uid", "kind", "spec", "last_applied", "status")))
_OLDER = "olderDefaults"  # beside the `spec` that was last applied; controller/service/objects/merge.py reads it
# Paths of the sandbox specs in an object's row, by kind: a template and a pool have none.
_PLACES: dict[str, tuple[tuple[str, ...], ...]] = {
    "Sandbox": (("spec",),),
    "Workflow": (("spec", "sandbox"),),
    "WorkflowRun": (("spec", "workflow", "sandbox"), ("status", "workflowSpec", "sandbox")),
}


def upgrade() -> None:
    _rewrite(_say_what_was)


def downgrade() -> None:
    _rewrite(_forget)


def _say_what_was(row: dict[str, Any], path: tuple[str, ...], spec: dict[str, Any]) -> None:
    before = spec.get("lifecycle") or {}
    spec["lifecycle"] = {**_BEFORE, **before}
    if row.get("last_applied") and path[0] == "spec":
        section = row["last_applied"].setdefault(_OLDER, {})
        for step in path[1:]:
            section = section.setdefault(step, {})
        section["lifecycle"] = {name: value for name, value in _BEFORE.items() if before.get(name, value) == value}


def _forget(row: dict[str, Any], _path: tuple[str, ...], spec: dict[str, Any]) -> None:
    """Return to what an older version reads. Hibernation is none of it: such a sandbox is suspended, or paused."""
    lifecycle = spec.get("lifecycle") or {}
    for name in _NEW:
        lifecycle.pop(name, None)
    if lifecycle.get("onIdle") == "Hibernate":
        lifecycle["onIdle"] = "Suspend"
    if spec.get("runState") == "Hibernated":
        spec["runState"] = "Paused"
    if row.get("last_applied"):
        row["last_applied"].pop(_OLDER, None)


def _rewrite(change: _Change) -> None:
    connection, after = op.get_bind(), ""
    query = sa.select(_OBJECTS).where(_OBJECTS.c.kind.in_(_PLACES)).order_by(_OBJECTS.c.uid).limit(_AT_ONCE)
    while objects := connection.execute(query.where(_OBJECTS.c.uid > after)).mappings().all():
        after = objects[-1]["uid"]
        for row in objects:
            _rewrite_row(connection, row, change)


def _rewrite_row(connection: sa.Connection, row: Any, change: _Change) -> None:
    texts = {name: row[name] for name in ("spec", "last_applied", "status") if row[name] is not None}
    document = {name: json.loads(text) for name, text in texts.items()}
    for path in _PLACES[row["kind"]]:
        spec: Any = document
        for step in path:
            spec = spec.get(step) if isinstance(spec, dict) else None
        if isinstance(spec, dict):
            change(document, path, spec)
    # As the store writes it (controller/store/rows.py): equal values are equal text.
    written = {name: json.dumps(value, sort_keys=True, separators=(",", ":")) for name, value in document.items()}
    if written != texts:
        connection.execute(sa.update(_OBJECTS).where(_OBJECTS.c.uid == row["uid"]).values(**written))
