"""The bearer token of a WebSocket that can't set headers: as a subprotocol, as in Kubernetes.

A web page offers `base64url.bearer.authorization.k8s.io.TOKEN`, the token in base64url without padding, beside the
subprotocol that it speaks.
"""

import base64
import binascii
import re

PREFIX = b"base64url.bearer.authorization.k8s.io."
_HEADER = b"sec-websocket-protocol"
_ENCODED = re.compile(rb"[A-Za-z0-9_-]+")
_VISIBLE = re.compile(rb"[\x21-\x7e]+")  # nothing that could end a header line


def with_authorization(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers with the token moved from the subprotocols to `authorization`.

    So it is never echoed or logged as a subprotocol. An unreadable token becomes an empty Bearer.
    """
    found: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        offered = [each.strip() for each in value.split(b",")] if name == _HEADER else []
        if not any(each.startswith(PREFIX) for each in offered):
            found.append((name, value))
            continue
        if others := [each for each in offered if not each.startswith(PREFIX)]:
            found.append((name, b", ".join(others)))
        found += [(b"authorization", b"Bearer " + _token(each)) for each in offered if each.startswith(PREFIX)]
    return found


def _token(subprotocol: bytes) -> bytes:
    """Return the token in a subprotocol; empty if there is none."""
    encoded = subprotocol.removeprefix(PREFIX)
    try:
        decoded = base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
    except binascii.Error:
        return b""
    return decoded if _ENCODED.fullmatch(encoded) and _VISIBLE.fullmatch(decoded) else b""
