"""Identity of a forwarded request: its caller, as the daemon that was asked has authenticated them, and its object.

One header carries it. Only the fleet listener believes it, of a daemon whose certificate is that host's.
"""

import json
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from controller.kinds.access.access import Caller, Grant
from controller.service.access.access import FORWARDED
from controller.service.errors import BadRequest

HEADER = "paddock-forwarded"
_ITSELF = Caller("paddock", grants=(Grant(role="admin"),))


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of a forwarded request. `host` has forwarded it; `uid` is the object's, `scheme` the request's."""

    host: str
    caller: Caller
    uid: str
    scheme: str


def identity_of(scope: Scope) -> Identity | None:
    """Return the identity of a request that another daemon has forwarded; None: it came from its caller."""
    identity: Identity | None = scope.get("state", {}).get(FORWARDED)
    return identity


def encode(host: str, caller: Caller | None, uid: str, scheme: str) -> bytes:
    """Return the header's value. No caller: Paddock itself."""
    asking = caller or _ITSELF
    grants = [grant.model_dump(mode="json", by_alias=True, exclude={"subject"}) for grant in asking.grants]
    fields = {
        "host": host,
        "uid": uid,
        "scheme": scheme,
        "name": asking.name,
        "source": asking.source,
        "grants": grants,
        "tokenID": asking.token_id,
        "expiresAt": asking.expires_at,
    }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode(value: str) -> Identity:
    """Read the header's value. Raises BadRequest."""
    try:
        fields: dict[str, Any] = json.loads(value)
        texts = [fields[key] for key in ("host", "uid", "scheme", "name", "source", "tokenID")]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a text is missing")
        host, uid, scheme, name, source, token = texts
        grants = tuple(Grant.model_validate_json(json.dumps(grant)) for grant in fields["grants"])
        expires = None if fields["expiresAt"] is None else float(fields["expiresAt"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRequest(
            f"the header {HEADER} can't be read ({type(error).__name__}); both daemons must be of about one version"
        ) from error
    if scheme not in ("http", "https"):
        raise BadRequest(f"the header {HEADER} has the scheme `{scheme[:20]}`; it must be http or https")
    return Identity(host, Caller(name, source, grants, token, expires), uid, scheme)
