"""`ports.Tokens` on the store's tables."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, insert, select, update

from controller.kinds.access.access import Grant, Token
from controller.kinds.access.audit import AuditEntry
from controller.ports import Conflict, StoreError
from controller.store import rows
from controller.store.audit import ChainEnd, append
from controller.store.schema import tokens

Operation = Callable[[str], AbstractContextManager[Connection]]
_ALL = select(tokens).order_by(tokens.c.created_at, tokens.c.id)


class SqlTokens:
    """`reading` and `writing` open the store's transactions."""

    def __init__(self, reading: Operation, writing: Operation, chain: ChainEnd) -> None:
        self._reading, self._writing, self._chain = reading, writing, chain

    def add(self, token: Token, entry: AuditEntry) -> None:
        """Add a token and its audit entry. Raises Conflict if an unrevoked token has its name."""
        with self._writing("token_add") as connection:
            if connection.execute(_standing(token.name)).first() is not None:
                raise Conflict(f"token `{token.name}`: exists already; revoke it first, or choose another name")
            connection.execute(insert(tokens).values(**_row(token)))
            append(connection, [entry], self._chain)

    def by_id(self, id_: str) -> Token | None:
        with self._reading("token_get") as connection:
            row = connection.execute(select(tokens).where(tokens.c.id == id_)).mappings().one_or_none()
        return None if row is None else _token(dict(row))

    def all(self) -> Sequence[Token]:
        """Return every token, revoked ones too, oldest first."""
        with self._reading("token_list") as connection:
            return [_token(dict(row)) for row in connection.execute(_ALL).mappings()]

    def revoke(self, name: str, at: float, entry: AuditEntry) -> Token | None:
        """Revoke the token of that name, and add an audit entry. Return the revoked token.

        None when no token of that name is left to revoke.
        """
        with self._writing("token_revoke") as connection:
            row = connection.execute(_standing(name)).mappings().first()
            if row is None:
                return None
            connection.execute(update(tokens).where(tokens.c.id == row["id"]).values(revoked_at=at))
            append(connection, [entry], self._chain)
            return replace(_token(dict(row)), revoked_at=at)


def _standing(name: str) -> Any:
    return select(tokens).where(tokens.c.name == rows.clean(name), tokens.c.revoked_at.is_(None))


def _row(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "digest": token.digest,
        "grant": rows.to_text(token.grant.model_dump(mode="json", by_alias=True, exclude_unset=True)),
        "created_at": token.created_at,
        "created_by": rows.clean(token.created_by),
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }


def _token(row: dict[str, Any]) -> Token:
    """Return the token of a row. Raises StoreError for an unreadable grant, which permits nothing."""
    try:
        grant = Grant.model_validate(rows.from_text(row["grant"]))
    except ValidationError as error:
        raise StoreError(
            f"token `{row['name']}`: unreadable for this version; revoke it, and create another"
        ) from error
    return Token(**{**row, "grant": grant})
