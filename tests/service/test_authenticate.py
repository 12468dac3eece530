"""Authentication: local callers by uid and groups, others by token."""

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kinds.access.access import Grant, PeerGrant
from controller.kinds.access.audit import AuditEntry
from controller.service import errors
from controller.service.access.authenticate import Identify, Names, Peer, bearer, new_token
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.helpers_api import ApiStack

NAMES = Names({"ann": 1000, "bob": 1001}.get, {"dev": 50, "paddock": 60}.get, {1000: "ann", 1001: "bob"}.get)
USER = Grant(role="user", namespaces=("team-a",))


def grants(*subjects: str) -> tuple[PeerGrant, ...]:
    return tuple(PeerGrant(subject=subject, role="user", namespaces=("team-a",)) for subject in subjects)


def listeners(api: ApiStack, *subjects: str, group_role: str = "admin") -> Identify:
    return Identify(
        tokens=api.store.tokens,
        clock=api.clock,
        names=NAMES,
        owners=frozenset((0, 990)),
        group=lambda: 60,
        group_role=group_role,
        grants=grants(*subjects),
    )


def roles(identify: Identify, uid: int, gid: int = 100, *groups: int) -> list[str]:
    return [grant.role for grant in identify.peer(Peer(1, uid, gid, groups)).grants]


def test_root_daemon_user_and_socket_group_are_admins(api: ApiStack) -> None:
    observed = listeners(api)
    assert (
        roles(observed, 0)
        == roles(observed, 990)
        == roles(observed, 1000, 60)
        == roles(observed, 1000, 100, 60)
        == ["admin"]
    )
    assert observed.peer(Peer(7, 1000, 60)).name == "ann (uid 1000)"
    with pytest.raises(errors.Forbidden, match="uid 4242 has no grants"):
        observed.peer(Peer(1, 4242, 100))


@pytest.mark.parametrize("subject", ["user:ann", "uid:1000", "group:dev", "gid:50"])
def test_grants_by_user_and_by_group(api: ApiStack, subject: str) -> None:
    observed = listeners(api, subject, group_role="none")
    assert roles(observed, 1000, 100, 50) == ["user"]
    with pytest.raises(errors.Forbidden):
        observed.peer(Peer(1, 1001, 60, (60, 100)))


def test_an_unknown_subject_matches_nobody(api: ApiStack) -> None:
    observed = listeners(api, "user:nobody-here", "group:none-here", group_role="none")
    with pytest.raises(errors.Forbidden):
        observed.peer(Peer(1, 1001, 100))


@pytest.fixture
def identify(api: ApiStack) -> Identify:
    return listeners(api)


def made(api: ApiStack, name: str = "ci", seconds: float | None = 60) -> str:
    return api.services.tokens.create(name, USER, seconds=seconds).text


def test_a_token_opens_what_it_grants_until_it_expires(api: ApiStack, identify: Identify) -> None:
    text = made(api)
    token = identify.token(text, "tcp 127.0.0.1")
    assert (token.name, token.source, token.grants) == ("token ci", "tcp 127.0.0.1", (USER,))
    api.clock.advance(60)
    with pytest.raises(errors.Unauthorized):
        identify.token(text, "")


def test_a_revoked_token_frees_its_name(api: ApiStack, identify: Identify) -> None:
    old = made(api)
    with pytest.raises(errors.Conflict, match="token `ci`: exists already"):
        made(api)
    api.services.tokens.revoke("ci")
    with pytest.raises(errors.Unauthorized):
        identify.token(old, "")
    assert identify.token(made(api), "").name == "token ci"
    with pytest.raises(errors.Unauthorized):
        identify.token(old, "")
    with pytest.raises(errors.NotFound):
        api.services.tokens.revoke("other")


def test_neither_the_id_nor_the_hash_opens_anything(api: ApiStack, identify: Identify) -> None:
    text = made(api)
    id_ = text.split("_")[1]
    (token,) = api.store.tokens.all()
    for wrong in (id_, f"pdk_{id_}_", f"pdk_{id_}_{token.digest[:43]}", f"pdk_{id_}_{secrets.token_urlsafe(32)}"):
        with pytest.raises(errors.Unauthorized):
            identify.token(wrong, "")
    for wrong in (text + " ", text + "\n", text.upper(), text[:-1], " " + text, text + "\0", text.replace("_", "-", 1)):
        with pytest.raises(errors.Unauthorized):
            identify.token(wrong, "")


def test_the_secret_is_nowhere_in_the_store(api: ApiStack) -> None:
    text = made(api)
    api.store.close()
    stored = b"".join(path.read_bytes() for path in api.folder.iterdir() if path.is_file())
    assert text.split("_")[1].encode() in stored
    assert text.split("_", 2)[2].encode() not in stored
    api.store.open()


class NoTokens:
    """Fails the test if anything is looked up."""

    def by_id(self, id_: str) -> None:
        raise AssertionError(f"asked the store for {id_!r}")


@given(st.text(max_size=200) | st.from_regex(r"pdk_[0-9a-f]{0,14}_[A-Za-z0-9_-]{0,50}", fullmatch=True))
def test_any_text_is_a_token_or_unauthorized(text: str) -> None:
    class Unknown:
        def by_id(self, id_: str) -> None:
            assert len(id_) == 12

    identify = Identify(tokens=Unknown(), clock=HandClock(), names=NAMES, owners=frozenset())  # type: ignore[arg-type]
    with pytest.raises(errors.Unauthorized):
        identify.token(text, "")


def test_what_cannot_be_a_token_is_not_looked_up() -> None:
    identify = Identify(tokens=NoTokens(), clock=HandClock(), names=NAMES, owners=frozenset())  # type: ignore[arg-type]
    for text in ("", "x" * 100_000, "pdk_" + "0" * 12 + "_" + "'; DROP TABLE tokens;--"):
        with pytest.raises(errors.Unauthorized):
            identify.token(text, "")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "bearer\tx", "Token x"])
def test_other_schemes_are_refused(header: str) -> None:
    with pytest.raises(errors.Unauthorized):
        bearer(header)


def test_a_store_that_cannot_be_asked_lets_nobody_in(api: ApiStack, identify: Identify) -> None:
    text = made(api)
    api.store.close()
    with pytest.raises(errors.ServiceUnavailable):
        identify.token(text, "")
    api.store.open()


def test_a_stored_grant_that_cannot_be_read_opens_nothing(api: ApiStack, identify: Identify) -> None:
    token, text = new_token("odd", USER, now=0, by="x", expires_at=None)
    api.store.tokens.add(token, AuditEntry(1.0, "root", "", "create"))
    _spoil(api.store)
    with pytest.raises(errors.ServiceUnavailable, match="token `odd`: unreadable"):
        identify.token(text, "")


def _spoil(store: SqlStore) -> None:
    from sqlalchemy import text

    with store._changing("test") as connection:
        connection.execute(text("""UPDATE tokens SET "grant" = '{"role": "emperor"}'"""))
