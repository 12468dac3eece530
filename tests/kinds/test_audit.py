"""The chain of the audit log: every part of an entry counts, and so does what came before."""

from dataclasses import replace

import pytest

from controller.kinds.access.audit import GENESIS, AuditEntry, entry_hash

ENTRY = AuditEntry(1.5, "ann", "unix", "create", "Sandbox", "default", "box", "uid", detail={"a": [1]}, id=7)


@pytest.mark.parametrize(
    "change",
    [
        {"at": 2.5},
        {"actor": "bob"},
        {"source": "tcp"},
        {"verb": "delete"},
        {"kind": "Quota"},
        {"namespace": "other"},
        {"name": "bax"},
        {"uid": "uid2"},
        {"outcome": "refused"},
        {"detail": {"a": [2]}},
        {"id": 8},
        {"actor": "annu", "source": "nix"},  # a part must not run into the next
    ],
)
def test_every_part_counts(change: dict[str, object]) -> None:
    assert entry_hash(replace(ENTRY, **change), GENESIS) != entry_hash(ENTRY, GENESIS)  # type: ignore[arg-type]


def test_the_hash_covers_the_previous_one() -> None:
    assert entry_hash(ENTRY, "x") != entry_hash(ENTRY, GENESIS)
    assert entry_hash(replace(ENTRY, hash="x"), GENESIS) == entry_hash(ENTRY, GENESIS)
    assert len(entry_hash(ENTRY, GENESIS)) == 64
