"""Credentials of a client: bearer token and trusted certificates.

They are never arguments, which everybody on the host can read in the process list.
"""

import os
import ssl
import stat
from pathlib import Path

from paddock._client.errors import ClientError
from paddock._client.server import Server

_MAX_BYTES = 4096


def authorization(server: Server) -> dict[str, str]:
    """Return the header with the token: the server's own, else that of PADDOCK_TOKEN_FILE or PADDOCK_TOKEN.

    Empty if none is set. Raises ClientError for a connection on which others could read the token.
    """
    token = server.token or _of_context(server) or _from_file() or os.environ.get("PADDOCK_TOKEN", "").strip()
    if not token:
        return {}
    check_token(token)
    if server.in_clear:
        raise ClientError(f"the token would be sent unencrypted to {server}; use https://...")
    return {"Authorization": f"Bearer {token}"}


def check_token(token: str) -> None:
    """Raise ClientError for a token that can't be one."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError("the token is malformed (it has spaces or unexpected characters); copy it again")


def trusted(server: Server) -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of the server's file or PADDOCK_CA_FILE, or the host's."""
    file = server.ca_file or os.environ.get("PADDOCK_CA_FILE")
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ssl.SSLError) as error:
        raise ClientError(
            f"{file}: not a readable certificate file ({error}); name a PEM file in PADDOCK_CA_FILE or the context"
        ) from error


def _of_context(server: Server) -> str:
    return read_private(server.token_file) if server.token_file else ""


def read_private(file: str) -> str:
    """Return the token in a file that only its owner may read. Raises ClientError."""
    try:
        with Path(file).expanduser().open() as opened:
            if foreign_bits := stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
                raise ClientError(
                    f"{file}: others may read the token (mode bits {foreign_bits:03o}); run `chmod 600 {file}`"
                )
            return opened.read(_MAX_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file}: can't read the token ({error}); check the context's tokenFile") from error


def _from_file() -> str:
    file = os.environ.get("PADDOCK_TOKEN_FILE")
    if not file:
        return ""
    try:
        with Path(file).open() as opened:
            return opened.read(_MAX_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file}: can't read the token ({error}); check PADDOCK_TOKEN_FILE") from error
