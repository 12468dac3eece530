"""Claims between two passes, which all see the same snapshot; on SQLite."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from controller.kinds.planning.instance_record import Instance
from controller.store.transaction import SqlTransaction
from tests.contract.claim_worlds import Claimant, fill, move_in, snapshot_of
from tests.contract.store_worlds import make_world

MEMBERS, MEMORY = 6, "64Mi"


def test_each_claim_reads_one_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[str] = []
    read = SqlTransaction.instances_of

    def counted(transaction: SqlTransaction, uids: Iterable[str]) -> Mapping[str, Instance]:
        members = list(uids)
        rows.extend(members)
        return read(transaction, members)

    with make_world("sqlite", tmp_path) as world:
        store = world.store()
        move_in(store, {})
        fill(store, 0, MEMBERS)
        claimant = Claimant(store, "one")
        claimant.see(snapshot_of(store))
        monkeypatch.setattr(SqlTransaction, "instances_of", counted)
        assert rows == [claimant.claim(MEMORY) for _ in range(MEMBERS)]


def test_undone_claim_leaves_its_member(tmp_path: Path) -> None:
    with make_world("sqlite", tmp_path) as world:
        store = world.store()
        move_in(store, {})
        fill(store, 0, MEMBERS)
        claimant = Claimant(store, "one")
        claimant.see(snapshot_of(store))
        undone = claimant.claim(MEMORY, undo=True)
        uids = [claimant.claim(MEMORY) for _ in range(MEMBERS + 1)]
        assert uids.index(undone) == MEMBERS - 1, "the last one that is handed out"
        assert len(set(uids)) == len(uids), "the last of them got none"
