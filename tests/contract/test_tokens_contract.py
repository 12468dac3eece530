"""Contract of every store's bearer tokens."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.kinds.access.access import Grant
from controller.kinds.access.audit import AuditEntry
from controller.ports import Conflict
from controller.service.access.authenticate import new_token
from tests.contract.store_backends import BACKENDS, Backend, make_backend

ENTRY = AuditEntry(1.0, "root", "here", "create", "Token")
GRANT = Grant.model_validate(
    {"role": "user", "namespaces": ["team-a", "team-*"], "images": ["a/*"], "limits": {"cpu": "500m", "memory": "1Gi"}}
)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


def test_tokens_are_kept_listed_and_revoked_once(backend: Backend) -> None:
    store = backend.store()
    first, _ = new_token("ci", GRANT, now=5.0, by="root (uid 0)", expires_at=None)
    second, _ = new_token("web", GRANT, now=6.0, by="root (uid 0)", expires_at=99.0)
    store.tokens.add(first, ENTRY)
    store.tokens.add(second, ENTRY)
    assert list(store.tokens.all()) == [first, second]
    assert store.tokens.by_id(second.id) == second
    assert store.tokens.by_id("0" * 12) is None
    assert store.tokens.revoke("ci", 7.0, ENTRY) == replace(first, revoked_at=7.0)
    assert store.tokens.revoke("ci", 8.0, ENTRY) is None
    assert store.tokens.by_id(first.id) == replace(first, revoked_at=7.0)
    other_store = backend.store()
    assert len(other_store.audit.entries()) == 3
    assert [token.state(50.0) for token in other_store.tokens.all()] == ["revoked", "active"]
    assert other_store.tokens.all()[1].state(99.0) == "expired"


def test_one_token_of_a_name_at_a_time(backend: Backend) -> None:
    store = backend.store()
    first, _ = new_token("ci", GRANT, now=5.0, by="x", expires_at=None)
    second, _ = new_token("ci", GRANT, now=6.0, by="x", expires_at=None)
    store.tokens.add(first, ENTRY)
    with pytest.raises(Conflict, match="token `ci`: exists already"):
        store.tokens.add(second, ENTRY)
    store.tokens.revoke("ci", 7.0, ENTRY)
    store.tokens.add(second, ENTRY)
    assert store.tokens.by_id(second.id) == second


def test_tokens_move_no_revision(backend: Backend) -> None:
    store = backend.store()
    before = store.revision()
    token, _ = new_token("ci", GRANT, now=5.0, by="x", expires_at=None)
    store.tokens.add(token, ENTRY)
    assert store.revision() == before
