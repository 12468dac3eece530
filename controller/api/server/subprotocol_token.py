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
    rewritten: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        offered = [subprotocol.strip() for subprotocol in value.split(b",")] if name == _HEADER else []
        if not any(subprotocol.startswith(PREFIX) for subprotocol in offered):
            rewritten.append((name, value))
            continue
        if remaining := [subprotocol for subprotocol in offered if not subprotocol.startswith(PREFIX)]:
            rewritten.append((name, b", ".join(remaining)))
        rewritten += [
            (b"authorization", b"Bearer " + _token(subprotocol))
            for subprotocol in offered
            if subprotocol.startswith(PREFIX)
        ]
    return rewritten


def _token(subprotocol: bytes) -> bytes:
    """Return the token in a subprotocol; empty if there is none."""
    encoded = subprotocol.removeprefix(PREFIX)
    try:
        decoded = base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
    except binascii.Error:
        return b""
    return decoded if _ENCODED.fullmatch(encoded) and _VISIBLE.fullmatch(decoded) else b""
