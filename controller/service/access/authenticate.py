"""Authentication: local users by Unix uid and groups, others by bearer token."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.kinds.access.access import Caller, Grant, PeerGrant, Role, Token
from controller.ports import Clock, Tokens
from controller.service import errors

PREFIX = "pdk"
_ID_BYTES, _SECRET_BYTES = 6, 32
_TOKEN = re.compile(r"pdk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})\Z")
_LONGEST = 128  # a token is shorter: longer texts are not parsed
_REFUSED = "the token is unknown, expired or revoked; ask an admin for a new one"


@dataclass(frozen=True, slots=True)
class Peer:
    """Peer credentials of a Unix socket, as of the connect.

    `groups` are the supplementary ones; None if the kernel did not report them.
    """

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Names:
    """Lookups of the host's users and groups. Each returns None for an unknown one.

    They may query a directory in the network, and block. `groups` takes a user and its primary group.
    """

    uid: Callable[[str], int | None]
    gid: Callable[[str], int | None]
    user: Callable[[int], str | None]
    groups: Callable[[str, int], Sequence[int]] = lambda _user, gid: (gid,)


class Identify:
    """Authenticates the caller. `owners` are uids with all permissions, regardless of settings.

    `group_role` is the role of members of the socket's group (`group()`; None: unknown); "none": no role.
    """

    def __init__(
        self,
        *,
        tokens: Tokens,
        clock: Clock,
        names: Names,
        owners: frozenset[int],
        group: Callable[[], int | None] = lambda: None,
        group_role: Role | str = "admin",
        grants: Sequence[PeerGrant] = (),
    ) -> None:
        self._tokens, self._clock, self._names = tokens, clock, names
        self._owners, self._group, self._group_role, self._grants = owners, group, group_role, grants

    def peer(self, peer: Peer) -> Caller:
        """Return the local user; may block on user lookups. Raises Forbidden without any grant."""
        user = self._names.user(peer.uid)
        name = f"{user} (uid {peer.uid})" if user else f"uid {peer.uid}"
        groups = peer.groups if peer.groups is not None else self._names.groups(user, peer.gid) if user else ()
        grants = tuple(self._granted(peer.uid, frozenset((peer.gid, *groups))))
        if not grants:
            raise errors.Forbidden(f"{name} has no grants; ask the operator of this host (setting `access`)")
        return Caller(name, f"unix pid {peer.pid} uid {peer.uid}", grants, uid=peer.uid)

    def token(self, text: str, source: str) -> Caller:
        """Return the holder of a token. Raises Unauthorized; ServiceUnavailable if the store fails."""
        match = _TOKEN.match(text) if len(text) <= _LONGEST else None
        if match is None:
            raise errors.Unauthorized(_REFUSED)
        with errors.translate_store_errors():
            stored_token = self._tokens.by_id(match[1])
        # An unknown id takes as long as a wrong secret.
        right = hmac.compare_digest(digest(match[2]), stored_token.digest if stored_token else digest(""))
        if stored_token is None or not right or stored_token.state(self._clock.now()) != "active":
            raise errors.Unauthorized(_REFUSED)
        return Caller(
            f"token {stored_token.name}", source, (stored_token.grant,), stored_token.id, stored_token.expires_at
        )

    def _granted(self, uid: int, gids: frozenset[int]) -> list[Grant]:
        if uid in self._owners:
            return [Grant(role="admin")]
        grants = [grant for grant in self._grants if self._is(grant.subject, uid, gids)]
        if self._group_role != "none" and self._group() in gids:
            return [*grants, Grant(role=self._group_role)]
        return list(grants)

    def _is(self, subject: str, uid: int, gids: frozenset[int]) -> bool:
        type_, _, name = subject.partition(":")
        match type_:
            case "uid":
                return uid == int(name)
            case "gid":
                return int(name) in gids
            case "user":
                return self._names.uid(name) == uid
            case _:
                return self._names.gid(name) in gids


def digest(secret: str) -> str:
    """Return the stored hash of a secret. It has 256 random bits, so that no slow hash is needed."""
    return hashlib.sha256(f"paddock token {secret}".encode()).hexdigest()


def new_token(name: str, grant: Grant, *, now: float, by: str, expires_at: float | None) -> tuple[Token, str]:
    """Return a token to store, and its text, which is shown once and stored nowhere."""
    id_ = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return Token(
        id_, name, digest=digest(secret), grant=grant, created_at=now, created_by=by, expires_at=expires_at
    ), f"{PREFIX}_{id_}_{secret}"


def bearer(header: str) -> str:
    """Return the token of an `Authorization` header. Raises Unauthorized unless it is `Bearer TOKEN`."""
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise errors.Unauthorized("the Authorization header must be `Bearer TOKEN`")
    return token.strip()
