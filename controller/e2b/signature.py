"""Access tokens of sandboxes, and signatures of URLs of their files. Pure.

An access token names its sandbox and the caller's own token, under a MAC with the daemon's key: it dies with either.
A signature is E2B's: SHA-256 of the request's parts and the access token, which is what protects it.
"""

import base64
import hashlib
import hmac
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Operation = Literal["read", "write"]
_PURPOSE = b"paddock e2b access token 1"
_TOKEN = re.compile(r"([0-9a-f]{12})([0-9a-f]{32})([0-9a-f]{64})\Z")
_SIGNATURE = re.compile(r"v1_[A-Za-z0-9+/]{43}\Z")
_TOKEN_LETTERS = 108
_LONGEST_EXPIRY = 12  # digits


@dataclass(frozen=True, slots=True)
class Access:
    """The sandbox by its uid, and the caller by the id of their token."""

    uid: str
    token_id: str


class AccessTokens:
    """Access tokens under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, access: Access) -> str:
        """Return the access token."""
        return f"{access.token_id}{uuid.UUID(access.uid).hex}{self._mac(access)}"

    def read(self, text: str) -> Access | None:
        """Return what the token gives access to; None: it is forged. Takes the same time for every well-formed text."""
        match = _TOKEN.match(text) if len(text) == _TOKEN_LETTERS else None
        if match is None:
            return None
        access = Access(str(uuid.UUID(match[2])), match[1])
        return access if hmac.compare_digest(match[3], self._mac(access)) else None

    def _mac(self, access: Access) -> str:
        parts = (_PURPOSE, uuid.UUID(access.uid).bytes, access.token_id.encode())
        return hmac.new(self._key, b"\0".join(parts), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """The parts of a signed request. `expires` is empty, or Unix seconds in digits."""

    path: str
    operation: Operation
    user: str
    signature: str
    expires: str = ""

    @property
    def is_well_formed(self) -> bool:
        """True if it may be a signature: others are not compared with anything."""
        expires = self.expires
        valid = not expires or (expires.isascii() and expires.isdigit() and len(expires) <= _LONGEST_EXPIRY)
        return valid and _SIGNATURE.match(self.signature) is not None

    def is_expired(self, now: float) -> bool:
        """Return True if its time has passed."""
        return bool(self.expires) and int(self.expires) <= now

    def signer(self, access_tokens: Iterable[str]) -> str:
        """Return the access token that it was signed with; "": none of them. Compares with all of them."""
        signers = [token for token in access_tokens if hmac.compare_digest(self.signature, signature(self, token))]
        return signers[0] if signers else ""


def signature(url: SignedUrl, access_token: str) -> str:
    """Return E2B's signature of a request by this access token."""
    parts = [url.path, url.operation, url.user, access_token, *([url.expires] if url.expires else ())]
    digest = hashlib.sha256(":".join(parts).encode("utf-8", "surrogateescape")).digest()
    return "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
