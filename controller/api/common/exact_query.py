"""Query parameters byte by byte: file names and arguments need not be UTF-8. Other bytes are surrogate escapes."""

from collections.abc import Sequence
from urllib.parse import parse_qsl

from starlette.requests import HTTPConnection

_REPLACED = "\ufffd"


def exact_values(connection: HTTPConnection, name: str) -> Sequence[str]:
    """Return all values of a parameter."""
    pairs = parse_qsl(
        connection.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape"
    )
    return [value for key, value in pairs if key == name]


def exact(connection: HTTPConnection, name: str, value: str) -> str:
    """Return a parameter as it was sent; `value` is its decoded one, in which other bytes are replaced."""
    return exact_values(connection, name)[-1] if _REPLACED in value else value
