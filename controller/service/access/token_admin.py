"""Create, list and revoke bearer tokens. Only admins of all namespaces may."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from controller.kinds.access.access import Grant, Token
from controller.kinds.access.audit import AuditEntry
from controller.ports import Clock, Tokens
from controller.service import errors
from controller.service.access import access
from controller.service.access.audit import entry
from controller.service.access.authenticate import new_token
from controller.service.access.token_expiry import TokenExpirations

LONGEST_SECONDS = 366 * 86400.0
_log = structlog.get_logger("paddock.tokens")


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A new token, and its text, which is shown once."""

    token: Token
    text: str


class TokenAdmin:
    """The use-cases."""

    def __init__(self, tokens: Tokens, clock: Clock, token_expirations: TokenExpirations) -> None:
        self._tokens, self._clock, self._lifetimes = tokens, clock, token_expirations

    def now(self) -> float:
        """Return the time of token states, in Unix seconds."""
        return self._clock.now()

    def create(self, name: str, grant: Grant, *, seconds: float | None) -> CreatedToken:
        """Create a token that is valid for `seconds` (None: until revoked). Raises Conflict if its name is taken."""
        asking, now = access.caller(), self._clock.now()
        by = asking.name if asking else "paddock"
        token, text = new_token(name, grant, now=now, by=by, expires_at=None if seconds is None else now + seconds)
        with errors.translate_store_errors():
            self._tokens.add(token, self._entry("create", name, role=grant.role, namespaces=list(grant.namespaces)))
        _log.info("token created", token=name, id=token.id, role=grant.role, by=by)
        return CreatedToken(token, text)

    def list(self) -> Sequence[Token]:
        """Return all tokens, oldest first."""
        with errors.translate_store_errors():
            return self._tokens.all()

    def revoke(self, name: str) -> Token:
        """Revoke a token, and end its open streams. Raises NotFound if there is none."""
        asking = access.caller()
        with errors.translate_store_errors():
            revoked_token = self._tokens.revoke(name, self._clock.now(), self._entry("revoke", name))
        if revoked_token is None:
            raise errors.NotFound(f"there is no token `{name}` to revoke; `paddock token list` lists them", name=name)
        self._lifetimes.mark_revoked(revoked_token.id)
        _log.info("token revoked", token=name, id=revoked_token.id, by=asking.name if asking else "paddock")
        return revoked_token

    def _entry(self, verb: str, name: str, **detail: Any) -> AuditEntry:
        return entry(self._clock, verb, kind="Token", name=name, detail=detail)
