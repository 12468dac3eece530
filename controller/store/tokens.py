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
from controller.store.audit import append
from controller.store.schema import tokens

Operation = Callable[[str], AbstractContextManager[Connection]]
_ALL = select(tokens).order_by(tokens.c.created_at, tokens.c.id)


class SqlTokens:
    """`reading` and `writing` are the store's own ways to its database."""

    def __init__(self, reading: Operation, writing: Operation) -> None:
        self._reading, self._writing = reading, writing

    def add(self, token: Token, entry: AuditEntry) -> None:
        """Keep a new one, with its entry in the audit log. Conflict when one that is not revoked has its name."""
        with self._writing("token_add") as connection:
            if connection.execute(_standing(token.name)).first() is not None:
                raise Conflict(f"there is a token `{token.name}` already; revoke it first, or take another name")
            connection.execute(insert(tokens).values(**_row(token)))
            append(connection, [entry])

    def by_id(self, id_: str) -> Token | None:
        with self._reading("token_get") as connection:
            row = connection.execute(select(tokens).where(tokens.c.id == id_)).mappings().one_or_none()
        return None if row is None else _token(dict(row))

    def all(self) -> Sequence[Token]:
        """Every token, revoked ones too, in the order in which they were made."""
        with self._reading("token_list") as connection:
            return [_token(dict(row)) for row in connection.execute(_ALL).mappings()]

    def revoke(self, name: str, at: float, entry: AuditEntry) -> Token | None:
        """Revoke the one of that name, and add its entry to the audit log; gives it revoked.

        None when no token of that name is left to revoke.
        """
        with self._writing("token_revoke") as connection:
            row = connection.execute(_standing(name)).mappings().first()
            if row is None:
                return None
            connection.execute(update(tokens).where(tokens.c.id == row["id"]).values(revoked_at=at))
            append(connection, [entry])
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
    """Raises StoreError for a grant that can't be read: it opens nothing."""
    try:
        grant = Grant.model_validate(rows.from_text(row["grant"]))
    except ValidationError as error:
        raise StoreError(f"token `{row['name']}` can't be read by this version: revoke it, and make another") from error
    return Token(**{**row, "grant": grant})
