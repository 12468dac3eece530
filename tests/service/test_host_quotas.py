"""HostQuotas of several hosts: their names, and the one that a written sandbox has to fit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.quota import Amount
from controller.kinds.registry import discover
from controller.policy.admission import admit
from controller.policy.levels.levels import Policy
from controller.ports.fleet import ManyHosts
from controller.service.objects.quota import Fitting, has_room
from controller.store.sql_store import SqlStore
from tests.migrated import open_store

HERE = ManyHosts("a")
FACTS = HostFacts(cpus=1, memory_bytes=1 << 30)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    capacity = {"cpu": "2", "memory": "256Mi", "gpus": 1}
    with open_store(tmp_path) as created:
        with created.transaction() as transaction:
            transaction.put(StoredObject("Host", "", "small", "uid-small", {}, status={"capacity": capacity}))
            for name, memory in (("a", "768Mi"), ("b", "128Mi")):
                transaction.put(StoredObject("HostQuota", "", name, f"uid-{name}", {"hard": {"memory": memory}}))
        yield created


def sandbox(**spec: Any) -> StoredObject:
    return StoredObject("Sandbox", "default", "web", "uid-web", {"template": {"image": "a:1"}, **spec})


@pytest.mark.parametrize(
    ("spec", "status", "refused"),
    [
        ({}, {}, []),  # no host bounds what has none
        ({"host": "a"}, {}, []),
        ({"host": "b"}, {}, ["can never fit hostquota b: memory: 512Mi requested, 0 of 128Mi used"]),
        ({}, {"host": "b"}, ["can never fit hostquota b: memory: 512Mi requested, 0 of 128Mi used"]),
        ({"host": "small"}, {}, ["can never fit hostquota small: memory: 512Mi requested, 0 of 256Mi used"]),
        ({"host": "unknown"}, {}, []),
    ],
)
def test_a_sandbox_has_to_fit_its_own_host(
    store: SqlStore, spec: dict[str, Any], status: dict[str, Any], refused: list[str]
) -> None:
    obj = StoredObject(**{**vars_of(sandbox(**spec)), "status": status})
    with store.transaction() as transaction:
        refusals = Fitting(transaction, [obj], FACTS, place=HERE).refusals(obj)
        assert [message for _, message in refusals] == refused


def vars_of(obj: StoredObject) -> dict[str, Any]:
    return {name: getattr(obj, name) for name in StoredObject.__slots__}


def test_a_claim_is_judged_by_the_members_host(store: SqlStore) -> None:
    amount = Amount(memory_bytes=512 << 20, sandboxes=1)
    with store.transaction() as transaction:
        assert has_room(transaction, "default", FACTS, amount, Amount(), "a")
        assert not has_room(transaction, "default", FACTS, amount, Amount(), "b")


def test_a_hostquota_is_named_as_its_host() -> None:
    kind = discover().by_name("HostQuota")
    assert kind is not None
    spec = kind.spec()
    [refusal] = admit(kind, spec, Policy(), "mine")
    assert (refusal.field, "only one HostQuota can exist, named `host`" in refusal.message) == ("metadata.name", True)
    assert admit(kind, spec, Policy(), "host") == admit(kind, spec, Policy(scheduler="manual"), "mine") == ()
