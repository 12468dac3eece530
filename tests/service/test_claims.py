"""Claims between two passes, which all see the same snapshot; on SQLite."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import DesiredObjects
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.plan.pool.claim_candidates import ready_key
from controller.policy.host.host import fitted
from controller.policy.levels.levels import Policy
from controller.ports.fleet import ManyHosts
from controller.store.transaction import SqlTransaction
from tests.contract.claim_backends import SPEC, Claimant, fill, fill_hosts, move_in, snapshot_of
from tests.contract.store_backends import make_backend

MEMBERS, MEMORY = 6, "64Mi"


@contextmanager
def filled_pool(tmp_path: Path) -> Iterator[Claimant]:
    """A claimant that sees a pool of MEMBERS."""
    with make_backend("sqlite", tmp_path) as backend:
        store = backend.store()
        move_in(store, {})
        fill(store, 0, MEMBERS)
        claimant = Claimant(store, "one")
        claimant.see(snapshot_of(store))
        yield claimant


def test_each_claim_reads_one_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[str] = []
    read = SqlTransaction.instances_of

    def counted(transaction: SqlTransaction, uids: Iterable[str]) -> Mapping[str, Instance]:
        members = list(uids)
        rows.extend(members)
        return read(transaction, members)

    with filled_pool(tmp_path) as claimant:
        monkeypatch.setattr(SqlTransaction, "instances_of", counted)
        assert rows == [claimant.claim(MEMORY) for _ in range(MEMBERS)]


def test_undone_claim_leaves_its_member(tmp_path: Path) -> None:
    with filled_pool(tmp_path) as claimant:
        undone = claimant.claim(MEMORY, undo=True)
        uids = [claimant.claim(MEMORY) for _ in range(MEMBERS + 1)]
        assert uids.index(undone) == MEMBERS - 1, "the last one that is handed out"
        assert len(set(uids)) == len(uids), "the last of them got none"


def test_claims_of_other_hosts_members_leave_nothing(tmp_path: Path) -> None:
    template = SandboxTemplateSpec.model_validate({"image": "tiny"})
    spec = SandboxSpec.model_validate({**SPEC, "resources": {"limits": {"memory": MEMORY}}})
    key = ready_key(spec, template, "default", fitted(Policy(), HostFacts()))
    with make_backend("sqlite", tmp_path) as backend:
        store = backend.store()
        move_in(store, {})
        uids = fill_hosts(store, ["two"] * MEMBERS, key)
        with store.transaction() as transaction:
            for member in store.instances():
                transaction.put_instance(replace(member, reserves=Limits(8000, 4 << 30, 4096)))
        claimant = Claimant(store, "one", ManyHosts("entry", default="two"))
        claimant.see(replace(snapshot_of(store), instances={}, desired=DesiredObjects({}, {})))
        assert [claimant.claim(MEMORY) for _ in range(MEMBERS)] == uids
        assert not claimant._claims._handed_over
