"""Credentials of a client: bearer token and trusted certificates.

They are never arguments, which everybody on the host can read in the process list.
"""

import os
import ssl
from pathlib import Path

from controller.client.errors import ClientError
from controller.client.server import Server

_MAX_BYTES = 4096


def authorization(server: Server) -> dict[str, str]:
    """Return the header with the token of PADDOCK_TOKEN_FILE or PADDOCK_TOKEN; empty if neither is set.

    Raises ClientError for a connection on which others could read the token.
    """
    token = _from_file() or os.environ.get("PADDOCK_TOKEN", "").strip()
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError("the token is malformed (it has spaces or unexpected characters); copy it again")
    if server.in_clear:
        raise ClientError(f"the token would be sent unencrypted to {server}; use https://...")
    return {"Authorization": f"Bearer {token}"}


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of PADDOCK_CA_FILE, or those of this host."""
    file = os.environ.get("PADDOCK_CA_FILE")
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ssl.SSLError) as error:
        raise ClientError(
            f"{file}: not a readable certificate file ({error}); set PADDOCK_CA_FILE to a PEM file"
        ) from error


def _from_file() -> str:
    file = os.environ.get("PADDOCK_TOKEN_FILE")
    if not file:
        return ""
    try:
        with Path(file).open() as opened:
            return opened.read(_MAX_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file}: can't read the token ({error}); check PADDOCK_TOKEN_FILE") from error
