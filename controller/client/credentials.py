"""What a client shows at the door: a bearer token, and whose certificates it believes. Never an argument, which
everybody on the host can read in the list of processes."""

import os
import ssl
from pathlib import Path

from controller.client.errors import ClientError
from controller.client.server import Server

_MAX_BYTES = 4096


def authorization(server: Server) -> dict[str, str]:
    """The header with the token of PADDOCK_TOKEN_FILE or PADDOCK_TOKEN; empty where neither is set.

    Raises ClientError rather than send a token where others could read it.
    """
    token = _from_file() or os.environ.get("PADDOCK_TOKEN", "").strip()
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError("the token is not one of Paddock's: it has spaces or odd characters; copy it again")
    if server.in_clear:
        raise ClientError(f"the token would be read on its way to {server}; write https://..., as the daemon serves it")
    return {"Authorization": f"Bearer {token}"}


def trusted() -> ssl.SSLContext:
    """Believes the certificate authorities of PADDOCK_CA_FILE, or those of this host."""
    file = os.environ.get("PADDOCK_CA_FILE")
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ssl.SSLError) as error:
        raise ClientError(
            f"{file}: can't be read as certificates ({error}); set PADDOCK_CA_FILE to a PEM file"
        ) from error


def _from_file() -> str:
    file = os.environ.get("PADDOCK_TOKEN_FILE")
    if not file:
        return ""
    try:
        with Path(file).open() as opened:
            return opened.read(_MAX_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file}: no token can be read from it ({error}); check PADDOCK_TOKEN_FILE") from error
