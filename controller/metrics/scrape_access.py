"""Access to the metrics listener: bearer token and TLS certificate, read from the files that settings name."""

import ssl
from dataclasses import dataclass
from pathlib import Path


class ScrapeAccessError(Exception):
    """The metrics listener can't be secured as configured; the message names the file and the remedy."""


@dataclass(frozen=True, slots=True)
class ScrapeAccess:
    """Token and TLS context of the metrics listener; None: not required, not used."""

    token: str | None = None
    tls: ssl.SSLContext | None = None


def load_scrape_access(token_file: Path | None, cert_file: Path | None, key_file: Path | None) -> ScrapeAccess:
    """Read the files. Raises ScrapeAccessError: a listener that was to be secured never starts without."""
    if (cert_file is None) != (key_file is None):
        raise ScrapeAccessError("metrics_tls_cert_file, metrics_tls_key_file: only one is set; set both, or none")
    token = None if token_file is None else _token(token_file)
    tls = None if cert_file is None or key_file is None else _tls(cert_file, key_file)
    return ScrapeAccess(token, tls)


def _token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ScrapeAccessError(f"metrics_token_file {file}: {reason}; give paddock's user a readable file") from error
    if not token or not token.isascii() or not token.isprintable() or len(token.split()) != 1:
        raise ScrapeAccessError(
            f"metrics_token_file {file}: is not one token; write one word of plain characters into it"
        )
    return token


def _tls(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except (OSError, ssl.SSLError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ScrapeAccessError(
            f"metrics_tls_cert_file {cert} and metrics_tls_key_file {key}: {reason}; name readable PEM files"
            " that belong together, the key without a passphrase"
        ) from error
    return context


def _no_passphrase() -> str:
    """Refuse to read a passphrase: a daemon has no terminal."""
    raise ValueError("the key has a passphrase")
