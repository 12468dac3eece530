"""The chain of the audit log: every part of an entry counts, and so does what came before."""

from dataclasses import replace

import pytest

from controller.kinds.access.audit import GENESIS, AuditEntry, AuditReport, ChainReport, entry_hash

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
        {"writer": "b"},
        {"actor": "annu", "source": "nix"},  # a part must not run into the next
    ],
)
def test_every_part_counts(change: dict[str, object]) -> None:
    assert entry_hash(replace(ENTRY, **change), GENESIS) != entry_hash(ENTRY, GENESIS)  # type: ignore[arg-type]


def test_older_versions_compute_the_same_without_a_writer() -> None:
    assert entry_hash(ENTRY, GENESIS) == "cc0a7f788b3421b439f28fcb8ea6cf188b888e405d388af21bda51e440e30503"


def test_the_report_sums_up_every_chain() -> None:
    chain_report, broken = (
        ChainReport("b", 3, 2, 5, "x", last_at=9.0),
        ChainReport("", 1, 4, 5, "y", "entry 6 is missing", 7),
    )
    both = AuditReport((broken, chain_report))
    assert (both.entries, both.pruned, both.thinned, both.newest) == (4, 6, 7, chain_report)
    assert both.problem == "chain of older versions: entry 6 is missing"
    assert AuditReport((chain_report,)).problem == AuditReport(()).problem == ""
    assert AuditReport(()).newest.last_hash == GENESIS


def test_the_hash_covers_the_previous_one() -> None:
    assert entry_hash(ENTRY, "x") != entry_hash(ENTRY, GENESIS)
    assert entry_hash(replace(ENTRY, hash="x"), GENESIS) == entry_hash(ENTRY, GENESIS)
    assert len(entry_hash(ENTRY, GENESIS)) == 64
